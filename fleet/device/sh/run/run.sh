# Starts a runner in a work folder of its own. $1 work folder, $2 text of config.json ("" for
# none), $3 limit in whole seconds, $4 `prompt` to feed the prompt to standard input, $5 `clean`
# to remove the work folder at the end, then the argv. stdin: the prompt, kept as prompt.txt. Status 124 when the limit ended it.
# After conditions.sh it looks at the device before, during and after, into the file .looks.
set -u
umask 077
work=$1 config=$2 limit=$3 feed=$4 after=$5
shift 5
# Nothing stands in it that another left: what is written here goes through no link.
mkdir -p "${work%/*}" && rm -rf "$work" && mkdir "$work" || exit 73
cat > "$work/prompt.txt" || exit 74
if [ -n "$config" ]; then printf '%s' "$config" > "$work/config.json" || exit 74; fi
input=/dev/null
if [ "$feed" = prompt ]; then input=$work/prompt.txt; fi
# Nothing of ours stays behind when the host is gone. Not by timeout(1): that of toybox 0.8.9
# gives 127 for every second program that ends well, and ends no grandchildren.
lead=''
if command -v setsid >/dev/null 2>&1; then lead=setsid; fi
if [ -n "${fl_every:-}" ]; then
  fl_before > "$work/.looks"
  fl_moment; echo "start $fl_now" >> "$work/.looks"
fi
$lead "$@" < "$input" &
child=$!
: > "$work/.running"
if [ -n "${fl_every:-}" ]; then
  (cd "$fl_root/sys"; fl_during "$work/.running" "$$" "$limit") < /dev/null >> "$work/.looks" 2>/dev/null &
  looking=$!
fi
end() {
  if [ -n "$lead" ]; then kill -s "$1" -- "-$child"; else kill -s "$1" "$child"; fi 2>/dev/null
}
# Looks once a second instead of being told: mksh can miss a signal just before it waits.
runs_for() {
  n=0
  while [ "$n" -lt "$1" ]; do
    sleep 1
    [ -e "$work/.running" ] || exit 0
    n=$((n + 1))
  done
}
(
  runs_for "$limit"
  : > "$work/.late"
  end TERM
  runs_for 5
  end KILL
) < /dev/null > /dev/null 2>&1 &
wait "$child"
status=$?
rm -f "$work/.running"
if [ -n "${looking:-}" ]; then
  exec 2>/dev/null # an older bash says of a killed job that it was terminated
  kill "$looking"
  (cd "$fl_root/sys"; fl_after) >> "$work/.looks"
fi
if [ -e "$work/.late" ]; then rm -f "$work/.late"; status=124; fi
if [ "$after" = clean ]; then cd / && rm -rf "$work"; fi
exit $status
