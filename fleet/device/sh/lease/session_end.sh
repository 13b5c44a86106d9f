# Removes what fleet made on a board by the hour: its programs that still run, its entries of the base folder, and the leases of this user. $1 base folder of the inventory ("" for the default).
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
  for one in store releases meta env current history runs serve staged shim fsck quarantine; do
    rm -rf "${base:?}/$one" || fail "not all of $base could be removed"
  done
  rmdir "$base" 2>/dev/null
  for one in "$dir"/* "$dir"/.[!.]*; do
    if [ -n "$dir" ] && [ -O "$one" ]; then rm -rf "$one"; fi
  done
  if [ -n "$dir" ] && [ -O "$dir" ]; then rmdir "$dir" 2>/dev/null; fi
  echo "removed $base"
)
