# Removes what fleet made on a board by the hour: its programs that still run, its base folder and the folder of leases. $1 base folder of the inventory ("" for the default).
base=$1
home=${FLEET_BOARD_HOME:-${HOME:-/tmp}}
if [ -d /data/local/tmp ] && [ -e /system/build.prop ]; then home=/data/local/tmp; fi
home=${home%/}
# shellcheck disable=SC2088 # the tilde is ours to expand
case $base in '') base=$home/fleet ;; '~/'*) base=$home/${base#??} ;; esac
(
  if ! place look; then dir=''; fi
  if [ -L "$base" ]; then fail "$base is a symbolic link"; fi
  real=$(cd "$base" 2>/dev/null && pwd -P) || real=$base
  for one in /proc/[0-9]*; do
    at=$(readlink "$one/cwd" 2>/dev/null)
    case $at in "$real"/*) kill -9 "${one##*/}" 2>/dev/null ;; esac
  done
  rm -rf "$base" "${dir:-$base}" || fail "not all of $base and ${dir:-$base} could be removed"
  echo "removed $base"
)
