# Keeps the server of a service running, where there is no systemd. $1 folder of the service.
# Started detached. Each pid stands in a file with its start time and the boot, so that another
# process with that number is never taken for it. The file `stop` ends all.
set -u
umask 077
trap '' HUP
dir=$1
cd "$dir" || exit 74
# Nothing that is there is written to, nor what a link leads to.
put() { (rm -f "$1.new"; set -C; echo "$2" > "$1.new" && mv -f "$1.new" "$1"); }
who() {
  w_line='' w_boot=''
  read -r w_line 2>/dev/null < "/proc/$1/stat"
  read -r w_boot 2>/dev/null < /proc/sys/kernel/random/boot_id
  w_pid=$1 w_file=$2
  # shellcheck disable=SC2086 # fields behind the name, which may hold blanks
  set -- ${w_line##*) }
  put "$w_file" "$w_pid ${20:-gone} $w_boot"
}
up() { read -r u_now _ < /proc/uptime; echo "${u_now%%.*}"; }
who $$ keeper
pause=1 count=0
while [ ! -e stop ]; do
  began=$(up)
  sh "$dir/release/run/serve_launch.sh" "$dir" < /dev/null &
  child=$!
  who "$child" server
  wait "$child"
  status=$?
  rm -f server
  if [ -e stop ]; then break; fi
  if [ "$status" = 10 ]; then echo "it cannot start; not tried again" >&2; put failed ''; break; fi
  count=$((count + 1))
  put restarts "$count $status"
  echo "the server ended with status $status; again in $pause s" >&2
  if [ $(($(up) - began)) -ge 60 ]; then pause=1; fi
  n=0
  while [ "$n" -lt "$pause" ] && [ ! -e stop ]; do sleep 1; n=$((n + 1)); done
  pause=$((pause * 2))
  if [ "$pause" -gt 30 ]; then pause=30; fi
done
rm -f keeper server
