# All facts of a device in one go. $1 base folder ("" for the default).
# POSIX sh only; every tool may be missing. Output: `key<TAB>value`, newlines as \037, NUL as \036.
# FLEET_SYSROOT: prefix of /sys, /dev and /etc on lab boards of an ordinary user.
# FLEET_BOARD_HOME: parent of the default base folder on lab boards.
LC_ALL=C; export LC_ALL
R=${FLEET_SYSROOT:-}
tab=$(printf '\t')
say() { [ -n "$2" ] && printf '%s\t%s\n' "$1" "$2"; }
has() { command -v "$1" >/dev/null 2>&1; }
line() { if [ -r "$1" ]; then IFS= read -r REPLY < "$1" || [ -n "$REPLY" ]; else REPLY=''; return 1; fi; }
one() { REPLY=''; line "$2" 2>/dev/null; say "$1" "$REPLY"; }
echo "fleet-facts 1"
say hostname "$(uname -n)"
say kernel "$(uname -r)"
say machine "$(uname -m)"
if [ -r "$R/etc/os-release" ]; then osrel=$R/etc/os-release; else osrel=/etc/os-release; fi
if [ -r "$osrel" ]; then
  while IFS='=' read -r key value; do
    value=${value#\"}; value=${value%\"}; value=${value#\'}; value=${value%\'}
    case $key in ID) say os_id "$value" ;; VERSION_ID) say os_version "$value" ;; PRETTY_NAME) say os_name "$value" ;; esac
  done < "$osrel"
fi
libc=$(getconf GNU_LIBC_VERSION 2>/dev/null)
if [ -z "$libc" ]; then
  for f in /lib/ld-musl-*; do [ -e "$f" ] && libc="musl $(ldd --version 2>&1 | while read -r a b; do [ "$a" = Version ] && echo "$b"; done)"; done
  [ -z "$libc" ] && [ -e /system/bin/linker64 ] && libc=bionic
fi
say libc "$libc"
one boot_id /proc/sys/kernel/random/boot_id
one machine_id /etc/machine-id
one uptime /proc/uptime
if [ -r /proc/meminfo ]; then
  while read -r key value rest; do
    case $key in MemTotal:) say mem_total_kb "$value" ;; MemAvailable:) say mem_available_kb "$value"; break ;; esac
  done < /proc/meminfo
fi
if [ -r "$R/sys/devices/soc0/soc_id" ]; then soc=$R/sys/devices/soc0; one soc_id "$soc/soc_id"
else soc=$R/sys/devices/system/soc/soc0; one soc_id "$soc/id"; fi
one soc_machine "$soc/machine"; one soc_family "$soc/family"; one soc_revision "$soc/revision"
tree=$R/sys/firmware/devicetree/base
[ -r "$tree/compatible" ] || tree=$R/proc/device-tree
[ -r "$tree/compatible" ] && say dt_compatible "$(tr '\000\n' '\036\037' < "$tree/compatible")"
[ -r "$tree/model" ] && say dt_model "$(tr '\000\n' '\036\037' < "$tree/model")"
say user "$(id -un 2>/dev/null)"
say uid "$(id -u)"
say home "${HOME:-}"
say groups_live "$(id -Gn 2>/dev/null || id -G)"
user=$(id -un 2>/dev/null)
if [ -n "$user" ]; then
  # `id NAME` asks the database; `id` alone says what this login has.
  say groups_db "$(id -Gn "$user" 2>/dev/null)"
fi
nodes=''
for name in fastrpc-cdsp fastrpc-cdsp-secure fastrpc-cdsp1 fastrpc-cdsp1-secure fastrpc-adsp adsprpc-smd dma_heap/system dma_heap/qcom,system; do
  node=$R/dev/$name
  if [ -e "$node" ] || [ "$name" = fastrpc-cdsp ] || [ "$name" = fastrpc-cdsp-secure ] || [ "$name" = dma_heap/system ]; then
    nodes="$nodes /dev/$name"
    mode=$(stat -c '%a %U %G' "$node" 2>/dev/null)
    [ -e "$node" ] || mode=''
    say node "/dev/$name$tab$mode"
  fi
done
python=$(command -v python3 2>/dev/null)
if [ -n "$python" ]; then
  # One start of python for all opens: O_NONBLOCK as libcdsprpc does, the errno by its name.
  "$python" -c '
import errno, os, sys
print("python3\t%s %d.%d.%d" % (sys.executable, *sys.version_info[:3]))
try:
    import ctypes
    print("python3_ctypes\tyes")
except ImportError:
    print("python3_ctypes\tno")
root = sys.argv[1]
for node in sys.argv[2:]:
    try:
        os.close(os.open(root + node, os.O_RDONLY | os.O_NONBLOCK))
        said = "ok"
    except OSError as e:
        said = errno.errorcode.get(e.errno, str(e.errno))
    print("open\t%s\t%s" % (node, said))
' "$R" $nodes 2>/dev/null
else
  guard=''
  has timeout && guard='timeout 3'
  for node in $nodes; do
    why=$( { $guard sh -c ': < "$1"' sh "$R$node"; } 2>&1 ) && why=ok
    case $why in
      ok) ;;
      *[Pp]ermission*) why=EACCES ;;
      *[Nn]o\ such\ file* | *nonexistent*) why=ENOENT ;;
      *[Nn]o\ such\ device\ or\ address*) why=ENXIO ;;
      *[Nn]o\ such\ device*) why=ENODEV ;;
      *busy*) why=EBUSY ;;
      *not\ permitted*) why=EPERM ;;
      *) why=unknown ;;
    esac
    say open "$node$tab$why"
  done
fi
for dir in /usr/lib /usr/lib64 /lib /usr/local/lib /usr/lib/aarch64-linux-gnu /usr/lib/x86_64-linux-gnu /vendor/lib64 /vendor/lib64/hw /system/lib64; do
  for f in "$R$dir"/libcdsprpc.so* ; do [ -e "$f" ] && say libcdsprpc "${f#"$R"}"; done
  [ -e "$dir/libatomic.so.1" ] && say libatomic "$dir/libatomic.so.1"
  for f in "$R$dir"/libQnn*.so* "$R$dir"/libGenie.so*; do [ -e "$f" ] && say qnn_library "${f#"$R"}"; done
done
say dsp_library_path "${DSP_LIBRARY_PATH:-}"
base=$1
home=${FLEET_BOARD_HOME:-${HOME:-/tmp}}
case $base in '') base=$home/fleet ;; '~') base=$home ;; '~/'*) base=$home/${base#'~/'} ;; esac
say base_dir "$base"
parent=$base
while [ ! -d "$parent" ] && [ "$parent" != / ] && [ -n "$parent" ]; do parent=${parent%/*}; [ -n "$parent" ] || parent=/; done
df -Pk "$parent" 2>/dev/null | { read -r _; read -r _ _ _ free _ mount; say disk_free_kb "$free"; say disk_mount "$mount"; }
df -Pi "$parent" 2>/dev/null | { read -r _; read -r _ _ _ free _; say disk_inodes "$free"; }
# A write is the proof: -w is true for root on a read-only mount in some shells.
probe=$parent/.fleet-probe-$$
if (: > "$probe") 2>/dev/null; then
  say disk_writable yes
  sync "$probe" 2>/dev/null && say sync_file yes
  rm -f "$probe"
else
  say disk_writable no
fi
for zone in "$R"/sys/class/thermal/thermal_zone*; do
  [ -d "$zone" ] || continue
  line "$zone/type" 2>/dev/null; kind=$REPLY
  line "$zone/temp" 2>/dev/null; say thermal "${zone##*/}$tab$kind$tab$REPLY"
done
if has sha256sum; then say sha256 sha256sum
elif has busybox && busybox sha256sum </dev/null >/dev/null 2>&1; then say sha256 'busybox sha256sum'
elif has toybox && toybox sha256sum </dev/null >/dev/null 2>&1; then say sha256 'toybox sha256sum'
elif has shasum; then say sha256 'shasum -a 256'
elif has openssl; then say sha256 'openssl dgst -sha256'; fi
has timeout && say timeout yes
[ "$(printf abc | dd bs=3 count=1 iflag=fullblock 2>/dev/null)" = abc ] && say dd_fullblock yes
for path in "$R/sys/class/remoteproc"/*; do
  [ -d "$path" ] || continue
  line "$path/name" 2>/dev/null; name=$REPLY; line "$path/state" 2>/dev/null; say remoteproc "$name$tab$REPLY"
done
[ -e "$R/etc/fleet-lab-board" ] && say lab yes
echo end
