#!/bin/sh
# Starts genie-t2t-run with what it says it knows: that of SDK 2.25 has no --profile. Where libGenie
# refuses the token limit (it refuses each key that it does not know), once more without it, and
# that is said. $1 work folder, then the argv.
set -u
work=$1
shift
case $("$1" --help 2>&1) in
  *--profile*) set -- "$@" --profile "$work/profile.json" ;;
esac
exec 3>&1
run() {
  status=$({ { "$@" 2>&1 >&3 3>&- 4>&-; echo $? >&4; } | tee "$work/said" >&2; } 4>&1)
}
run "$@" -c "$work/config.json"
if [ "$status" -ne 0 ] && grep -q "additional property 'max-num-tokens'" "$work/said"; then
  sed 's/, "max-num-tokens": [0-9]*//' "$work/config.json" > "$work/unlimited.json" || exit 74
  echo '[fleet: this libGenie refuses max-num-tokens; it is run again without a token limit]' >&2
  run "$@" -c "$work/unlimited.json"
fi
exit "$status"
