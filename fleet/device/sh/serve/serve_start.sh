# Starts the supervisor of a service, detached from this login. $1 folder of the service.
set -u
umask 077
dir=$1
rm -f "$dir/stop"
if [ -L "$dir/log" ]; then rm -f "$dir/log"; fi
lead='nohup'
if command -v setsid >/dev/null 2>&1; then lead='setsid'; fi
$lead sh "$dir/release/run/serve_supervise.sh" "$dir" < /dev/null >> "$dir/log" 2>&1 &
n=0
while [ ! -e "$dir/keeper" ] && [ "$n" -lt 10 ]; do
  if [ -e "$dir/failed" ]; then break; fi
  sleep 1
  n=$((n + 1))
done
echo "started"
