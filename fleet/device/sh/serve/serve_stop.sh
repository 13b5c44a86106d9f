# Stops a service that our supervisor keeps. $1 folder of the service, $2 seconds until it is killed.
# A pid counts only with its start time and boot: another process is never hit.
set -u
dir=$1 limit=$2
rm -f "$dir/stop"
(set -C; : > "$dir/stop") || exit 74
alive() {
  a_pid='' a_ticks='' a_boot='' a_line='' a_now=''
  read -r a_pid a_ticks a_boot 2>/dev/null < "$1" || return 1
  read -r a_now 2>/dev/null < /proc/sys/kernel/random/boot_id
  [ "$a_boot" = "$a_now" ] || return 1
  case $a_pid in '' | *[!0-9]*) return 1 ;; esac
  read -r a_line 2>/dev/null < "/proc/$a_pid/stat" || return 1
  # shellcheck disable=SC2086 # fields behind the name, which may hold blanks
  set -- ${a_line##*) }
  [ "$1" != Z ] && [ "${20:-}" = "$a_ticks" ]
}
said=absent
if alive "$dir/server"; then said=stopped; kill -s TERM "$a_pid" 2>/dev/null; fi
if alive "$dir/keeper"; then said=stopped; fi
n=0
while alive "$dir/server" || alive "$dir/keeper"; do
  if [ "$n" -ge "$limit" ]; then
    said=killed
    if alive "$dir/server"; then kill -s KILL "$a_pid" 2>/dev/null; fi
    if alive "$dir/keeper"; then kill -s KILL "$a_pid" 2>/dev/null; fi
  fi
  if [ "$n" -gt $((limit + 5)) ]; then echo "it does not end" >&2; exit 75; fi
  sleep 1
  n=$((n + 1))
done
rm -f "$dir/server" "$dir/keeper"
echo "$said"
