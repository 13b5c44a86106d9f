# What there is of a service. $1 base, $2 name, $3 name of its unit. Reads only.
set -u
base=$1 name=$2 unit=$3
dir=$base/serve/$name
echo "fleet-serve 1"
if [ -z "${XDG_RUNTIME_DIR:-}" ] && [ -d "/run/user/$(id -u)" ]; then
  XDG_RUNTIME_DIR=/run/user/$(id -u); export XDG_RUNTIME_DIR
fi
word() { case $2 in '' | *[!A-Za-z0-9_.:-]*) ;; *) echo "$1 $2" ;; esac; }
if command -v systemctl >/dev/null 2>&1; then
  case $(systemctl --user is-system-running 2>/dev/null) in
    running | degraded | starting | initializing) echo "user yes" ;;
  esac
  for scope in --user --system; do
    systemctl "$scope" show -p LoadState -p ActiveState -p SubState -p NRestarts -p MainPID \
      -p UnitFileState -- "$unit" 2>/dev/null | while IFS='=' read -r key value; do
      word "unit ${scope#--} $key" "$value"
    done
  done
  word linger "$(loginctl show-user "$(id -un)" -p Linger --value 2>/dev/null)"
fi
current=$(readlink "$base/current/$name" 2>/dev/null); word current "${current##*/}"
link=$(readlink "$dir/release" 2>/dev/null); word release "${link##*/}"
boot=''
read -r boot 2>/dev/null < /proc/sys/kernel/random/boot_id
for one in keeper server; do
  pid='' ticks='' when='' line=''
  read -r pid ticks when 2>/dev/null < "$dir/$one" || continue
  case $pid in '' | *[!0-9]*) continue ;; esac
  [ "$when" = "$boot" ] || continue
  read -r line 2>/dev/null < "/proc/$pid/stat" || continue
  # shellcheck disable=SC2086 # fields behind the name, which may hold blanks
  set -- ${line##*) }
  if [ "$1" != Z ] && [ "${20:-}" = "$ticks" ]; then echo "alive $one $pid"; fi
done
if [ -e "$dir/failed" ]; then echo "failed yes"; fi
if [ -s "$dir/token" ]; then echo "token yes"; fi
count='' status=''
read -r count status 2>/dev/null < "$dir/restarts" && word restarts "$count" && word ended "$status"
if [ -f "$dir/config.json" ]; then printf 'config '; tr '\n' ' ' < "$dir/config.json"; echo; fi
echo "end"
