# All facts of a device in one go. $1 base folder ("" for the default).
# POSIX sh only; every tool may be missing. What begins with `all:` is left out where
# only files are to be brought (fleet/facts/gather.py). Output: `key<TAB>value`, newlines as \037, NUL as \036.
# FLEET_SYSROOT: prefix of /sys, /dev and /etc on lab boards of an ordinary user.
# FLEET_BOARD_HOME: parent of the default base folder on lab boards.
LC_ALL=C; export LC_ALL
R=${FLEET_SYSROOT:-}
base=$1
nl='
'
tab='	'
# mksh has no printf of its own: print saves a process per line.
# shellcheck disable=SC3003 # only where it is known
if [ -n "${KSH_VERSION:-}" ]; then us=$'\037'; put() { print -r -- "$1"; }
else us=$(printf '\037'); put() { printf '%s\n' "$1"; }; fi
say() {
  said=$2
  while :; do case $said in *"$nl"*) said=${said%%"$nl"*}$us${said#*"$nl"} ;; *) break ;; esac; done
  [ -z "$said" ] || put "$1$tab$said"
}
has() { command -v "$1" >/dev/null 2>&1; }
line() { REPLY=''; [ -r "$1" ] && { IFS= read -r REPLY < "$1" || [ -n "$REPLY" ]; } 2>/dev/null; }
one() { line "$2"; say "$1" "$REPLY"; }
# An empty line first: what the login printed may not end its own.
put ''
put 'fleet-facts 1'
# shellcheck disable=SC2046 # three words
set -- $(uname -nrm 2>/dev/null)
[ $# -eq 3 ] || { line /proc/sys/kernel/hostname; set -- "$REPLY"; line /proc/sys/kernel/osrelease; set -- "$1" "$REPLY" ''; }
say hostname "$1"; say kernel "$2"; say machine "$3"
osrel=$R/etc/os-release
[ -r "$osrel" ] || osrel=/etc/os-release
if [ -r "$osrel" ]; then
  while IFS='=' read -r key value; do
    value=${value#\"}; value=${value%\"}; value=${value#\'}; value=${value%\'}
    case $key in ID) say os_id "$value" ;; VERSION_ID) say os_version "$value" ;; PRETTY_NAME) say os_name "$value" ;; esac
  done < "$osrel"
fi
# all: the C library
libc=$(getconf GNU_LIBC_VERSION 2>/dev/null)
[ -e "$R/system/bin/linker64" ] && libc=bionic
case $libc in glibc* | bionic) ;; *) libc='' ;; esac
# Yocto images often have neither getconf nor ldd; the loader itself says its version.
for loader in /lib/ld-linux-*.so.* /lib64/ld-linux-*.so.* /lib/ld-musl-*; do
  if [ -n "$libc" ] || [ ! -x "$loader" ]; then continue; fi
  text=$("$loader" --version 2>&1)
  case $text in
    musl*Version\ *) libc=${text#*Version }; libc="musl ${libc%%"$nl"*}" ;;
    *\ version\ [0-9]*) libc=${text#* version }; libc=${libc%%"$nl"*}; libc="glibc ${libc%.}" ;;
    *) libc=$(ldd --version 2>/dev/null); libc=${libc%%"$nl"*}
      case $libc in *' '[0-9]*.[0-9]*) libc="glibc ${libc##* }" ;; *) libc='' ;; esac ;;
  esac
done
say libc "$libc"
# end of all
one boot_id /proc/sys/kernel/random/boot_id
line "$R/etc/machine-id" || line /etc/machine-id
say machine_id "$REPLY"
one uptime /proc/uptime
if [ -r /proc/meminfo ]; then
  while read -r key value rest; do
    case $key in MemTotal:) say mem_total_kb "$value" ;; MemAvailable:) say mem_available_kb "$value"; break ;; esac
  done < /proc/meminfo
fi
soc=$R/sys/devices/soc0
if [ -r "$soc/soc_id" ]; then one soc_id "$soc/soc_id"
else soc=$R/sys/devices/system/soc/soc0; one soc_id "$soc/id"; fi
one serial_number "$soc/serial_number"; one soc_machine "$soc/machine"; one soc_family "$soc/family"; one soc_revision "$soc/revision"
# all: the device tree
# Radxa's setup-dsp.sh mounts a file over it (radxa-pkg/fastrpc).
grep -q ' /sys/devices/soc0/soc_id ' "$R/proc/self/mountinfo" 2>/dev/null && say soc_covered yes
tree=$R/sys/firmware/devicetree/base
[ -r "$tree/compatible" ] || tree=$R/proc/device-tree
for name in compatible model; do
  [ -r "$tree/$name" ] && say "dt_$name" "$(tr '\000\n' '\036\037' < "$tree/$name" 2>/dev/null)"
done
# end of all
# `id` says what this login has, `id NAME` asks the database.
text=$(id 2>/dev/null)
user=${text%% gid=*}
case $user in uid=*\(*\)) user=${user#*\(}; user=${user%\)} ;; *) user='' ;; esac
case $text in
  uid=*) say id "$text" ;;
  *) # toybox refuses a group without a name
    if [ -r /proc/self/status ]; then
      while read -r key value rest; do
        case $key in Uid:) uid=$value ;; Gid:) gid=$value ;; Groups:) groups="$gid $value $rest" ;; esac
      done < /proc/self/status
      say ids "$uid $groups"
      [ -r /etc/group ] && while IFS=: read -r name _ key _; do
        case " $groups " in *" $key "*) say group "$key $name" ;; esac
      done < /etc/group
    fi ;;
esac
# all: groups as the database has them
[ -z "$user" ] || say id_db "$(id "$user" 2>/dev/null)"
# end of all
HOME=${HOME:-}
if [ -z "$HOME" ] && [ -n "$user" ]; then HOME=$(getent passwd "$user" 2>/dev/null); HOME=${HOME%:*}; HOME=${HOME##*:}; fi
say home "$HOME"
# all: nodes, Python, libraries
nodes='' there=''
for name in fastrpc-cdsp fastrpc-cdsp-secure fastrpc-cdsp1 fastrpc-cdsp1-secure fastrpc-adsp adsprpc-smd dma_heap/system dma_heap/qcom,system; do
  if [ -e "$R/dev/$name" ]; then there="$there $name"
  else case $name in fastrpc-cdsp | fastrpc-cdsp-secure | dma_heap/system) ;; *) continue ;; esac; fi
  nodes="$nodes $name"
  say node "/dev/$name"
done
# shellcheck disable=SC2086 # a list of names; those of other DSPs are not opened, rules name them
say modes "$(cd "$R/dev" 2>/dev/null && { stat -c '%a %U %G %n' $there fastrpc-* || ls -ld $there fastrpc-*; } 2>/dev/null)"
guard=''
if has timeout; then
  say timeout yes
  # Before 1.30 busybox wants -t. Its status is not asked: toybox 0.8.9 says 127 at random.
  for text in timeout 'timeout -t'; do [ -z "$guard" ] && [ "$($text 5 echo ok 2>/dev/null)" = ok ] && guard=$text; done
fi
# One start of python for all opens: O_NONBLOCK as libcdsprpc does, the errno by its name.
# shellcheck disable=SC2086 # lists of words
text=$(has python3 && ${guard:+$guard 5} python3 -ISu -c '
import errno, os, sys
print("python3\t%s %d.%d.%d" % (sys.executable, *sys.version_info[:3]))
try:
    import ctypes
    print("python3_ctypes\tyes")
except ImportError:
    print("python3_ctypes\tno")
try:
    import hashlib, threading
except ImportError:
    print("python3_whole\tno")
for node in sys.argv[2:]:
    try:
        os.close(os.open(sys.argv[1] + node, os.O_RDONLY | os.O_NONBLOCK))
        said = "ok"
    except OSError as e:
        said = errno.errorcode.get(e.errno, str(e.errno))
    print("open\t/dev/%s\t%s" % (node, said))
' "$R/dev/" $nodes 2>/dev/null)
[ -z "$text" ] || put "$text"
case $text in
  *open"$tab"*) ;;
  *)
    for name in $nodes; do
      f=$R/dev/$name
      # shellcheck disable=SC2016 # for the inner shell
      if [ -n "$guard" ]; then why=$($guard 2 sh -c ': < "$1" && echo opened' sh "$f" 2>&1); else why=$( (: < "$f" && echo opened) 2>&1); fi
      case $?,${why##*"$f"} in
        *,opened) why=ok ;;
        124,* | 137,* | 143,*) why=ETIMEDOUT ;;
        *[Pp]ermission\ denied*) why=EACCES ;;
        *[Nn]o\ such\ file* | *nonexistent*) why=ENOENT ;;
        *[Nn]o\ such\ device\ or\ address*) why=ENXIO ;;
        *[Nn]o\ such\ device*) why=ENODEV ;;
        *busy*) why=EBUSY ;;
        *not\ permitted*) why=EPERM ;;
        *[Ii]nput/output*) why=EIO ;;
        *[Nn]ot\ a\ directory*) why=ENOTDIR ;;
        *) why=unknown ;;
      esac
      say open "/dev/$name$tab$why"
    done ;;
esac
lib() {
  case $1 in */libcdsprpc.so*) say libcdsprpc "$1" ;; */libatomic.so*) say libatomic "$1" ;; */libstdc++.so*) say libstdcpp "$1" ;; *) say qnn_library "$1" ;; esac
}
for dir in /usr/lib /usr/lib64 /lib /lib64 /usr/local/lib /usr/lib/aarch64-linux-gnu /usr/lib/x86_64-linux-gnu /vendor/lib64 /vendor/lib64/hw /system/lib64; do
  for f in "$dir/libatomic.so.1" "$dir/libstdc++.so.6"; do [ -e "$f" ] && lib "$f"; done
  [ -L "$R$dir" ] && continue
  for f in "$R$dir"/libcdsprpc.so* "$R$dir"/libQnn*.so* "$R$dir"/libGenie.so*; do [ -e "$f" ] && lib "${f#"$R"}"; done
done
(PATH=$PATH:/usr/sbin:/sbin; ldconfig -p) 2>/dev/null | grep -E 'lib(cdsprpc|Qnn|Genie|atomic|stdc[+][+]).*(AArch64|x86-64)' 2>/dev/null | while read -r text; do
  f=${text##* => }
  case $f in /lib/*) [ -L /lib ] && f=/usr$f ;; esac
  case $R,$f in ,* | *libatomic.so.1 | *libstdc++.so.6) [ -e "$f" ] && lib "$f" ;; esac
done
# The process of a session on the DSP begins with a shell of these folders (fastrpc_apps_user.c, open_shell).
say dsp_shell none
for dir in "$R"/usr/lib/rfsa/adsp "$R"/usr/lib/dsp "$R"/usr/lib/dsp/cdsp "$R"/usr/share/hexagon-dsp/*/*/*/dsp/cdsp "$R"/usr/share/qcom/*/*/*/dsp/cdsp; do
  for f in "$dir"/fastrpc_shell_*3; do [ -e "$f" ] && say dsp_shell "${f#"$R"}"; done
done
# end of all
say dsp_library_path "${DSP_LIBRARY_PATH:-}"
home=${FLEET_BOARD_HOME:-${HOME:-/tmp}}
home=${home%/}
# shellcheck disable=SC2088 # the tilde is ours to expand
case $base in '') base=$home/fleet ;; '~') base=$home ;; '~/'*) base=$home/${base#??} ;; /*) ;; *) base=$home/$base ;; esac
say base_dir "$base"
[ -d "$base/store" ] && say store yes || say store no
# all: what is put in its place
for f in "$base"/shim/libcd* "$base"/shim/libat*; do [ -e "$f" ] && lib "$f"; done
# end of all
parent=$base
while [ ! -d "$parent" ] && [ -n "$parent" ]; do parent=${parent%/*}; done
parent=${parent:-/}
df -Pk "$parent" 2>/dev/null | { read -r _; read -r _ _ _ free _ mount; say disk_free_kb "$free"; say disk_mount "$mount"; }
# Files of earlier releases that give way to what is sent.
for spare in "$base"/store/*.spare; do
  [ -f "$spare" ] && du -k "$spare" 2>/dev/null | { read -r size _; say disk_spare_kb "$size"; }
done
# all: inodes
# btrfs and vfat count no inodes: a total of 0.
df -Pi "$parent" 2>/dev/null | { read -r _; read -r _ total _ free _; [ "${total:-0}" = 0 ] || say disk_inodes "$free"; }
# end of all
# A write is the proof: -w is true for root on a read-only mount in some shells.
probe=$parent/.fleet-probe-$$
if (set -C; : > "$probe") 2>/dev/null; then
  say disk_writable yes
  sync "$probe" 2>/dev/null && say sync_file yes
  rm -f "$probe"
else
  say disk_writable no
fi
# all: sensors and processors
for zone in "$R"/sys/class/thermal/thermal_zone*; do
  [ -d "$zone" ] || continue
  line "$zone/type"; text=$REPLY
  line "$zone/temp"; say thermal "${zone##*/}$tab$text$tab$REPLY"
done
for path in "$R"/sys/class/remoteproc/*; do
  [ -d "$path" ] || continue
  line "$path/name"; text=$REPLY
  line "$path/state"; say remoteproc "$text$tab$REPLY"
done
# end of all
for text in sha256sum 'busybox sha256sum' 'toybox sha256sum' 'shasum -a 256' 'openssl dgst -sha256'; do
  $text < /dev/null > /dev/null 2>&1 && { say sha256 "$text"; break; }
done
[ "$(echo abc | dd bs=4 count=1 iflag=fullblock 2>/dev/null)" = abc ] && say dd_fullblock yes
[ "$(find / -prune -printf x 2>/dev/null)" = x ] && say find_printf yes
has tar && say tar yes
has gzip && say gzip yes
[ -e "$R/etc/fleet-lab-board" ] && say lab "${R:-yes}"
put end
