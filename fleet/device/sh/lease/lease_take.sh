# Takes a lease. $1 write|reserve, $2 owner, $3 reason, $4 run, $5 token, $6 ttl in seconds,
# $7 `generation:token` of a holder whose process is known to have ended, or -; then the argv of a
# command to go on with once the lease is there.
kind=$1 me=$2 because=$3 job=$4 mine=$5 ttl=$6 dead=$7
shift 7
echo "fleet-lease 1"
clock
place make
echo "place $dir"
foreign() { [ "$state" = held ] && [ "$owner" != "$me" ]; }
# Out of sight in one rename, then away. Says who holds, else that several were at it.
withdraw() {
  replace "$dir/$kind.$next" "$new" 2>/dev/null && rm -rf "$new"
  refuse
}
refuse() {
  look "$kind"
  if [ "$state" = held ]; then tell held "$kind"; else echo "raced"; fi
  echo "end"
  exit 0
}
other="write"
if [ "$kind" = write ]; then other=reserve; fi
look "$other"
if foreign; then tell held "$other"; echo "end"; exit 0; fi
look "$kind"
if spent "$kind"; then echo "end"; exit 0; fi
if [ "$state" = held ]; then
  if [ "$kind" = reserve ] && ! foreign; then :
  elif [ "$dead" = "$top:$token" ] && [ "$busy" = idle ]; then :
  else tell held "$kind"; echo "end"; exit 0; fi
fi
before="$top $seen" next=$((top + 1))
create "$kind" "$next" held || refuse
# A slow one may have made a generation that was removed long ago; and the holder may have
# renewed between our look and our rename: it sees us, or we see that. Then nobody has it.
highest "$kind"
if [ "$top" != "$next" ]; then withdraw; fi
look "$kind" "$next"
if [ "$top $seen" != "$before" ]; then withdraw; fi
if [ "$kind" = write ]; then
  look reserve
  if foreign; then
    replace "$dir/$kind.$next" "$new" 2>/dev/null && rm -rf "$new"
    tell held reserve; echo "end"; exit 0
  fi
fi
echo "got $kind $next"
# The one before stays: who was broken can be told by whom. Those of others are theirs.
for one in "$dir/$kind".*; do
  n=${one##*.}
  if digits "$n" && [ "$n" -lt $((next - 1)) ]; then rm -rf "$one" 2>/dev/null; fi
done
for one in "$dir"/.new.*; do
  n=${one#"$dir"/.new.}; n=${n%%.*}
  if digits "$n" && { [ "$n" -gt "$now" ] || [ $((now - n)) -gt 60 ]; }; then rm -rf "$one" 2>/dev/null; fi
done
echo "end"
if [ $# -gt 0 ]; then exec "$@"; fi
