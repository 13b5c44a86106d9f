# The system of a device below the releases, in one round trip; reads only.
# stdin lines: `package<TAB>name`, `group<TAB>name`, `file<TAB>path`, `unit<TAB>name`.
# Output: `key<TAB>value...`, contents in hex. FLEET_SYSROOT: as in the facts.
set -u
LC_ALL=C; export LC_ALL
PATH=$PATH:/usr/sbin:/sbin; export PATH
R=${FLEET_SYSROOT:-}
tab=$(printf '\t')
has() { command -v "$1" >/dev/null 2>&1; }
hex() { od -An -v -tx1 | tr -d ' \n'; }
echo "fleet-system 1"
for tool in apt-get dpkg opkg udevadm systemctl ldconfig groupadd usermod addgroup setfacl sudo reboot systemd-sysusers; do
  has "$tool" && printf 'tool\t%s\n' "$tool"
done
packages=''
units=''
while IFS=$tab read -r kind name; do
  case $kind in
    package) case $name in *[!a-z0-9+.:-]* | -* | '') ;; *) packages="$packages $name" ;; esac ;;
    unit) case $name in *[!A-Za-z0-9@._:-]* | -* | '') ;; *) units="$units $name" ;; esac ;;
    group)
      if has getent; then line=$(getent group "$name" 2>/dev/null)
      else line=''; while IFS= read -r each; do [ "${each%%:*}" = "$name" ] && line=$each; done < /etc/group; fi
      if [ -n "$line" ]; then printf 'group\t%s\t%s\n' "$name" "${line##*:}"; else printf 'nogroup\t%s\n' "$name"; fi ;;
    file)
      f=$R$name
      if [ -L "$f" ]; then printf 'file\t%s\tlink\t\t\t\t%s\n' "$name" "$(readlink "$f" | hex)"
      elif [ -d "$f" ]; then printf 'file\t%s\tfolder\n' "$name"
      elif [ -f "$f" ]; then
        if [ -r "$f" ]; then content=x$(hex < "$f"); else content=''; fi
        # shellcheck disable=SC2046 # three words
        set -- $(stat -c '%a %U %G' "$f" 2>/dev/null)
        printf 'file\t%s\tfile\t%s\t%s\t%s\t%s\n' "$name" "${1:-}" "${2:-}" "${3:-}" "$content"
      elif [ -e "$f" ]; then printf 'file\t%s\tother\n' "$name"
      else printf 'file\t%s\tabsent\n' "$name"; fi ;;
  esac
done
if has apt-get && has dpkg-query; then
  echo "manager${tab}apt"
  for f in "$R"/var/lib/apt/lists/*Packages*; do [ -e "$f" ] && { echo "lists${tab}yes"; break; }; done
  for f in "$R"/etc/apt/sources.list "$R"/etc/apt/sources.list.d/*.list; do
    [ -r "$f" ] && while IFS= read -r line || [ -n "$line" ]; do
      case $line in deb\ * | deb"$tab"*) printf 'source\t%s\n' "$line" ;; esac
    done < "$f"
  done
  for f in "$R"/etc/apt/sources.list.d/*.sources; do
    [ -r "$f" ] && while IFS= read -r line || [ -n "$line" ]; do
      case $line in URIs:* | Uris:* | uris:*) printf 'source\t%s\n' "$line" ;; esac
    done < "$f"
  done
  # shellcheck disable=SC2086 # a list of checked names
  [ -z "$packages" ] || {
    printf 'native\t%s\n' "$(dpkg --print-architecture 2>/dev/null)"
    dpkg-query -W -f 'installed\t${Package}\t${Version}\t${db:Status-Status}\t${Architecture}\n' $packages 2>/dev/null
    every=$packages
    for arch in $(dpkg --print-foreign-architectures 2>/dev/null); do
      for name in $packages; do every="$every $name:$arch"; done
    done
    apt-cache policy $every 2>/dev/null | while IFS= read -r line; do
      case $line in
        [a-z0-9]*:) name=${line%:} ;;
        '  Candidate: '*) line=${line#*: }; [ "$line" = '(none)' ] || printf 'candidate\t%s\t%s\n' "$name" "$line" ;;
      esac
    done
  }
  dpkg-query -W -f '${db:Status-Status}\t${Package}\n' 2>/dev/null | while IFS=$tab read -r state name; do
    case $state in installed | config-files | not-installed) ;; *) printf 'halfway\t%s\t%s\n' "$name" "$state" ;; esac
  done
elif has opkg; then
  echo "manager${tab}opkg"
  for f in "$R"/var/lib/opkg/lists/* "$R"/var/opkg-lists/*; do [ -e "$f" ] && { echo "lists${tab}yes"; break; }; done
  for name in $packages; do
    line=$(opkg list-installed "$name" 2>/dev/null); [ -z "$line" ] || printf 'installed\t%s\t%s\tinstalled\n' "$name" "${line#* - }"
    line=$(opkg list "$name" 2>/dev/null); line=${line#* - }; [ -z "$line" ] || printf 'candidate\t%s\t%s\n' "$name" "${line%% - *}"
  done
fi
# shellcheck disable=SC2086 # a list of checked names
[ -z "$units" ] || ! has systemctl || for unit in $units; do
  systemctl show -p LoadState -p ActiveState -p UnitFileState "$unit" 2>/dev/null | {
    load='' active='' enabled=''
    while IFS='=' read -r key value; do
      case $key in LoadState) load=$value ;; ActiveState) active=$value ;; UnitFileState) enabled=$value ;; esac
    done
    [ -z "$load" ] || printf 'unit\t%s\t%s\t%s\t%s\n' "$unit" "$load" "$active" "$enabled"
  }
done
# A file of the same name in an earlier folder hides the later one (man udev).
seen=' '
for dir in /etc/udev/rules.d /run/udev/rules.d /usr/lib/udev/rules.d /lib/udev/rules.d; do
  for f in "$R$dir"/*.rules; do
    [ -r "$f" ] || continue
    case $seen in *" ${f##*/} "*) continue ;; esac
    seen="$seen${f##*/} "
    grep -E -v '^[[:space:]]*(#|$)' "$f" 2>/dev/null | grep -E 'fastrpc|dma_heap|adsprpc' 2>/dev/null | while IFS= read -r line; do
      printf 'rule\t%s\t%s\n' "${f#"$R"}" "$line"
    done
  done
done
for dir in /usr/lib/rfsa/adsp /usr/lib/dsp /usr/lib/dsp/cdsp /usr/share/hexagon-dsp/*/*/*/dsp/cdsp /usr/share/qcom/*/*/*/dsp/cdsp /usr/share/qcom/*/*/*/dsp/cdsp1; do
  for f in "$R"$dir/libQnn*Skel.so; do [ -e "$f" ] && printf 'skel\t%s\n' "${f#"$R"}"; done
done
# What programs that fleet does not start would find first.
for list in LD_LIBRARY_PATH ADSP_LIBRARY_PATH; do
  case $list in LD*) value=${LD_LIBRARY_PATH:-} ;; *) value=${ADSP_LIBRARY_PATH:-} ;; esac
  while [ -n "$value" ]; do
    dir=${value%%[:;]*}
    case $value in *[:\;]*) value=${value#*[:;]} ;; *) value='' ;; esac
    [ -n "$dir" ] || continue
    for f in "$R$dir"/libQnn*.so "$R$dir"/libGenie.so; do [ -e "$f" ] && printf 'onpath\t%s\t%s\n' "$list" "${f#"$R"}"; done
  done
done
for f in "$R"/opt/qairt/* "$R"/opt/qcom/aistack/qairt/*; do [ -d "$f/lib" ] && printf 'tree\t%s\n' "${f#"$R"}"; done
# ls marks a node that has an access list.
for f in "$R"/dev/dma_heap/*; do
  case $(ls -ld "$f" 2>/dev/null) in ??????????+*) printf 'acl\t%s\n' "${f#"$R"}" ;; esac
done
# By which event fleet applied the rules, since they and the nodes were last changed.
latest() { sort | tail -n 1; }
newest=$(stat -c %z "$R"/dev/fastrpc-* "$R"/dev/adsprpc-* "$R"/dev/dma_heap/* "$R"/etc/udev/rules.d "$R"/run/udev/rules.d \
  "$R"/usr/lib/udev/rules.d "$R"/etc/udev/rules.d/* "$R"/usr/lib/udev/rules.d/*fastrpc* 2>/dev/null | latest)
for f in "$R"/run/fleet-udev-*; do
  [ -e "$f" ] || continue
  made=$(stat -c %z "$f" 2>/dev/null)
  [ "$(printf '%s\n' "$newest" "$made" | latest)" = "$made" ] && printf 'tried\t%s\n' "${f##*-}"
done
[ -e "$R/run/reboot-required" ] && echo "reboot${tab}yes"
echo "end"
