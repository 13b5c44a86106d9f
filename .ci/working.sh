#!/bin/sh
# .ci/working.sh TEXT COMMAND...: run a command that is silent for long or says too much. On a
# terminal one line moves: TEXT, the seconds, the last words. Elsewhere only TEXT. What it said
# stands there in full when it fails.
text=$1
shift
log=$(mktemp)
echo "$text" >&2
"$@" >"$log" 2>&1 &
pid=$!
trap 'kill "$pid" 2>/dev/null; [ ! -t 2 ] || printf "\r\033[K" >&2; rm -f "$log"; exit 130' INT TERM HUP
begun=$(date +%s)
while [ -t 2 ] && kill -0 "$pid" 2>/dev/null; do
  last=$(tail -n 1 "$log" | tr -cd '[:print:]' | sed 's/^ *//' | cut -c 1-60)
  printf '\r\033[K     %s s  %s' "$(($(date +%s) - begun))" "$last" >&2
  sleep 0.5
done
[ ! -t 2 ] || printf '\r\033[K' >&2
wait "$pid"
code=$?
[ "$code" = 0 ] || cat "$log" >&2
rm -f "$log"
exit "$code"
