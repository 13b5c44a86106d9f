# What only the doctor asks; joined to probe.sh and shares its functions. Changes nothing.
# $folders: folders on the device that the user named, one a line. $verify: "hash" or "".
all() { put "$1$tab$(tr '\n' '\037')"; }
sha=''
if has sha256sum; then sha=sha256sum; elif has toybox; then sha='toybox sha256sum'; elif has busybox; then sha='busybox sha256sum'; fi
for f in /.dockerenv /run/.containerenv; do [ -e "$R$f" ] && say container "$f"; done
line /proc/1/environ; case $REPLY in *container=*) say container "/proc/1/environ: container=" ;; esac
for f in "$R"/sys/devices/system/cpu/cpufreq/policy*; do
  line "$f/scaling_max_freq" && text=$REPLY && line "$f/cpuinfo_max_freq" && say clock "${f##*/}$tab$text$tab$REPLY"
done
# The last mount on the longest path that holds the base folder.
best='' opts=''
while read -r _ dir kind text _; do
  case $parent/ in "${dir%/}"/*) [ ${#dir} -ge ${#best} ] && best=$dir opts="$kind $text" ;; esac
done < /proc/mounts
say mount "$best$tab$opts"
# What a switch and a lease do, tried in a place of its own: the names of replace.sh.
for f in "$parent"/.fleet-try-*; do [ ! -d "$f" ] || [ -d "/proc/${f##*-}" ] || rm -rf "$f"; done
f=$parent/.fleet-try-$$
if mkdir "$f" 2>/dev/null; then
  text=$( { mkdir "$f/one" "$f/two" && ln -s one "$f/live" && point "$f/live" two "$f/.live" && replace "$f/one" "$f/three"; } 2>&1 ) && text=yes || text="no$tab$text"
  say rename "$text"
  rm -rf "$f"
fi
# One ELF file: size, its first 64 bytes, the QAIRT build id that stands in it.
elf() {
  set -- "$1" "${1#"$R"}"
  id=$(grep -a -o -m 1 -E 'v[0-9]+\.[0-9]+\.[0-9]+\.[0-9]{12}' "$1" 2>/dev/null | head -n 1)
  head=$(od -An -v -tx1 -N64 "$1" 2>/dev/null | tr -d ' \n')
  size=$(wc -c < "$1" 2>/dev/null)
  say elf "$2$tab${size##* }$tab$head$tab$id"
}
context() {
  size=$(wc -c < "$1" 2>/dev/null)
  say context "${1#"$R"}$tab${size##* }$tab$(head -c 262144 "$1" 2>/dev/null | grep -a -o -E 'v[0-9]+\.[0-9]+\.[0-9]+\.[0-9]{12}|soc_type=[A-Za-z0-9_]+;arch=[0-9]+' 2>/dev/null | head -n 4)"
}
for f in "$R"/usr/lib/libcdsprpc.so "$R"/usr/lib/*/libcdsprpc.so "$R"/lib64/libcdsprpc.so "$R"/usr/lib64/libcdsprpc.so "$R"/usr/local/lib/libcdsprpc.so "$R"/vendor/lib64/libcdsprpc.so "$base/shim/libcdsprpc.so"; do
  [ -r "$f" ] || continue
  elf "$f"
  if grep -a -q dspqueue_read "$f" 2>/dev/null; then text=yes; else text=no; fi
  say dspqueue "${f#"$R"}$tab$text"
done
for unit in cdsprpcd cdsp1rpcd; do
  text=''
  has systemctl && text=$(${guard:+$guard 5} systemctl show -p LoadState -p ActiveState "$unit.service" 2>/dev/null | tr '\n' ' ')
  [ -n "$text" ] || { has pidof && pidof "$unit" >/dev/null 2>&1 && text='ActiveState=active'; }
  say unit "$unit$tab$text"
done
for path in "$R"/sys/class/remoteproc/*; do
  [ -r "$path/firmware" ] || continue
  line "$path/name"; name=$REPLY
  line "$path/firmware"; text=no
  for f in "$R/lib/firmware/$REPLY" "$R/lib/firmware/$REPLY".* "$R/lib/firmware/updates/$REPLY" "$R/vendor/firmware/$REPLY" "$R/vendor/firmware_mnt/image/$REPLY"; do [ -e "$f" ] && text=yes; done
  say firmware "$name$tab$REPLY$tab$text"
done
# Words of the kernel, of libcdsprpc and of QNN since the boot; both tools may refuse.
words='fastrpc|adsprpc|cdsprpc|remoteproc|qcom_q6v5|rpcmem|QnnDsp|avc: +denied|apps_dev_init|open_shell|smmu.*fault|Out of memory'
if has logcat; then ${guard:+$guard 5} logcat -d -t 4000 2>/dev/null | grep -a -i -E "$words" 2>/dev/null | tail -n 60 | all journal
else
  { ${guard:+$guard 5} journalctl -b -q --no-pager -o short-iso -n 4000 || { tail -n 4000 /var/log/syslog || tail -n 4000 /var/log/messages || logread; ${guard:+$guard 5} dmesg; }; } 2>/dev/null | grep -a -i -E "$words" 2>/dev/null | tail -n 60 | all journal
fi
# Silent where no ps lists the processes; that of busybox knows no -e. The list can be longer than
# the argument of a program may be, and printf is one in mksh: it stays in the pipe.
! has grep || ! has tail || { ps -eo pid,user,etime,args || ps -o pid,user,etime,args; } 2>/dev/null | {
  IFS= read -r text || exit 0
  grep -E '(genie-t2t-run|qnn-net-run|GenieAPIService|fleet_genie|mllm[a-z0-9-]*runner|geniex?|llama-[a-z]+)( |$)' 2>/dev/null | grep -v -E 'grep |sh -c ' | while read -r pid text; do
    # A board of an ordinary user sees the processes of its workstation: its own carry its sysroot.
    [ -z "$R" ] || tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -F -x -q "FLEET_SYSROOT=$R" || continue
    printf "%s %s\n" "$pid" "$text"
  done | tail -n 10 | all busy
}
say env "LD_LIBRARY_PATH$tab${LD_LIBRARY_PATH:-}"
say env "ADSP_LIBRARY_PATH$tab${ADSP_LIBRARY_PATH:-}"
for f in /etc/environment /etc/profile /etc/profile.d/*.sh "${HOME:-/}/.profile" "${HOME:-/}/.bash_profile" "${HOME:-/}/.bashrc" "${HOME:-/}/.zshrc"; do
  [ -r "$R$f" ] || { [ -r "$f" ] && case $f in "${HOME:-/}"/*) ;; *) false ;; esac } || continue
  [ -r "$R$f" ] && text=$R$f || text=$f
  grep -n -E '^[^#]*(ADSP|DSP|LD)_LIBRARY_PATH=' "$text" 2>/dev/null | while IFS= read -r text; do say setting "$f:$text"; done
done
# What a search beyond the release would find: backend, stubs and skels.
for f in "$R"/usr/lib/libQnnHtp.so "$R"/usr/lib/*/libQnnHtp.so "$R"/usr/lib/libQnnHtpV*Stub.so "$R"/usr/lib/*/libQnnHtpV*Stub.so "$R"/vendor/lib64/libQnnHtpV*Stub.so "$R"/odm/lib64/libQnnHtpV*Stub.so \
  "$R"/opt/qairt/*/lib/*/libQnnHtpV*Stub.so "$R"/usr/lib/rfsa/adsp/libQnnHtpV*Skel.so "$R"/usr/lib/dsp/cdsp/libQnnHtpV*Skel.so \
  "$R"/usr/lib/dsp/libQnnHtpV*Skel.so "$R"/vendor/lib/rfsa/adsp/libQnnHtpV*Skel.so "$R"/vendor/lib64/rfsa/adsp/libQnnHtpV*Skel.so "$R"/vendor/dsp/cdsp/libQnnHtpV*Skel.so; do
  [ -r "$f" ] && { elf "$f"; say system "${f#"$R"}"; }
done
# Releases of fleet: what the links are, which blobs came after the release was sealed.
# $1 name, $2 id, $3 yes or no: is it sealed; or staged: it is ready and was never live.
release() {
  name=$1 rel=$base/releases/$1/$2 own=$base/meta/$1/$2 mark=.installed
  [ -d "$own" ] || own=$rel
  [ "$3" != staged ] || mark=manifest.json
  say release "$name$tab$2$tab$rel$tab$3"
  [ -r "$base/history/$name" ] && all history < "$base/history/$name"
  # The blobs of the release before this one.
  text=$(grep -v -x -F -e "$2" "$base/history/$name" 2>/dev/null | tail -n 1)
  [ -z "$text" ] || (cd "$base/releases/$name/$text" 2>/dev/null && has find && has readlink && find . -type l -exec readlink {} + | all before_blobs)
  [ -r "$own/manifest.json" ] || return 0
  all manifest < "$own/manifest.json"
  has find && has stat && has readlink && (cd "$rel" 2>/dev/null && say listed yes && find . -type l -print | all links && find . -type l -exec readlink {} + | all targets && find . ! -type d -exec stat -L -c '%s %n' {} + 2>/dev/null | all sizes)
  # Blobs that were written after the release was sealed are read again; all with --verify.
  total=0
  [ -z "$sha" ] || find "$rel" -type l 2>/dev/null | while IFS= read -r f; do
    if [ "$verify" != hash ]; then
      [ "$f" -nt "$own/$mark" ] || continue
      size=$(wc -c < "$f"); total=$((total + size)); [ "$total" -lt 300000000 ] || { say unhashed "$f"; continue; }
    fi
    text=$($sha "$f" 2>/dev/null); f=$(readlink "$f"); say hash "${f##*/}$tab${text%% *}"
  done
  # Links that lead out of the store, and files in the place of links.
  find "$rel" ! -type d \( -name '*.so' -o -name '*.so.*' \) 2>/dev/null | while IFS= read -r f; do
    case $(readlink "$f") in "$base"/store/*) ;; *) [ -r "$f" ] && elf "$f" ;; esac
  done
  has ldd && [ -e "$rel/lib/libQnnHtp.so" ] && LD_LIBRARY_PATH="$rel/lib:$base/shim" ${guard:+$guard 5} ldd "$rel/lib/libQnnHtp.so" 2>/dev/null | grep 'not found' 2>/dev/null | while IFS= read -r text; do say lacking "$rel/lib/libQnnHtp.so$tab${text%% =>*}"; done
  return 0
}
for link in "$base/current"/*; do
  [ -L "$link" ] || continue
  name=${link##*/}; id=$(readlink "$link"); id=${id##*/}
  own=$base/meta/$name/$id; [ -d "$own" ] || own=$base/releases/$name/$id
  text=no; [ -f "$own/.installed" ] && text=yes
  release "$name" "$id" "$text"
done
# Of a name that has nothing live: what was staged. Its probe failed, or the deploy was cut off.
for f in "$base/releases"/*/*; do
  id=${f##*/}; name=${f%/*}; name=${name##*/}; own=$base/meta/$name/$id; [ -d "$own" ] || own=$f
  [ -L "$base/current/$name" ] || [ ! -f "$own/manifest.json" ] || [ -f "$own/.installed" ] || release "$name" "$id" staged
done
# Set-ups that somebody made by hand.
while IFS= read -r dir; do
  [ -n "$dir" ] || continue
  # shellcheck disable=SC2088 # the tilde is ours to expand
  case $dir in '~') dir=$home ;; '~/'*) dir=$home/${dir#??} ;; /*) ;; *) dir=$home/$dir ;; esac
  if [ ! -d "$dir" ]; then say folder "$dir${tab}absent"; continue; fi
  say folder "$dir${tab}there"
  find "$dir" -maxdepth 5 ! -type d \( -name 'libQnn*.so' -o -name 'libGenie.so' -o -name 'genie-t2t-run' -o -name 'qnn-net-run' -o -name '*.bin' -o -name '*.json' -o -name '*.dlc' \) 2>/dev/null | head -n 400 | while IFS= read -r f; do
    case $f in
      *.bin) context "$f" ;;
      *.json) size=$(wc -c < "$f"); if [ "${size##* }" -le 65536 ]; then put "json$tab$f$tab$(tr '\n' '\037' < "$f" 2>/dev/null)"; else say json "$f"; fi ;;
      *.dlc) ;;
      *) elf "$f" ;;
    esac
  done
  find "$dir" -maxdepth 5 ! -type d 2>/dev/null | head -n 2000 | all files
  f=$(find "$dir" -maxdepth 5 -name libQnnHtp.so 2>/dev/null | head -n 1)
  [ -n "$f" ] && has ldd && LD_LIBRARY_PATH="${f%/*}" ${guard:+$guard 5} ldd "$f" 2>/dev/null | grep 'not found' 2>/dev/null | while IFS= read -r text; do say lacking "$f$tab${text%% =>*}"; done
done <<END
$folders
END
