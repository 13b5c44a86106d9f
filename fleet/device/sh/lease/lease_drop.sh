# Ends what holds, by a generation that is released at once. $1 owner, $2 reason, $3 token,
# $4 "force": foreign reservations and write leases as well; "-": only one's own reservation.
me=$1 because=$2 job='=' mine=$3 force=$4 ttl=0
echo "fleet-lease 1"
clock
if place look; then
  place make
  for kind in reserve write; do
    for round in 1 2 3 4 5; do
      look "$kind"
      if spent "$kind"; then break; fi
      if [ "$state" != held ]; then break; fi
      if [ "$force" != force ] && { [ "$kind" = write ] || [ "$owner" != "$me" ]; }; then
        tell held "$kind"; break
      fi
      gone=$(tell dropped "$kind")
      if create "$kind" $((top + 1)) released; then echo "$gone"; break; fi
      if [ "$round" = 5 ]; then echo "raced"; fi
    done
  done
fi
echo "end"
