# Runs a program of a person's, with no input, after a mark; at the limit it is ended with its
# children. $1 limit in whole seconds, then the argv.
limit=$1
shift
echo fleet-file
lead=''
if command -v setsid >/dev/null 2>&1; then lead=setsid; fi
$lead "$@" < /dev/null &
child=$!
end() {
  if [ -n "$lead" ]; then kill -s "$1" -- "-$child"; else kill -s "$1" "$child"; fi
}
(
  while kill -0 "$child"; do
    if [ "$limit" = 0 ]; then end TERM; fi
    if [ "$limit" = -5 ]; then end KILL; exit; fi
    sleep 1
    limit=$((limit - 1))
  done
) < /dev/null > /dev/null 2>&1 &
watch=$!
wait "$child"
status=$?
kill -9 "$watch" 2> /dev/null  # a TERM right after the fork is lost in mksh
exit "$status"
