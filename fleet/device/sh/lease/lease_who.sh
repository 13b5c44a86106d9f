# Who holds; reads only. $1...: a command to go on with.
(
  echo "fleet-lease 1"
  clock
  if place look; then
    for kind in write reserve; do
      look "$kind"
      echo "top $kind ${top:-0}"
      if spent "$kind"; then continue; fi
      if [ "$state" = held ]; then tell held "$kind"; fi
    done
  else
    echo "top write 0"
  fi
  echo "end"
)
if [ $# -gt 0 ]; then exec "$@"; fi
