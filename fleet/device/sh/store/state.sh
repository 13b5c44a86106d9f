# What a device has of one release. $1 base, $2 name, $3 id, $4 "hash" to re-hash all blobs (else
# only those that are younger than the release), then the argv of the hash tool. `sealed`: every
# file has the inode, size and times that it had when the release was switched to. stdin:
# `<sha256><TAB><size><TAB><key><TAB><name>` per file of the release; a part may be named by the key.
# `old`: an earlier fleet made it, with files of fleet's own among those of the user.
# Whole groups are asked of readlink and stat at once; file by file only where one differs.
set -u
LC_ALL=C; export LC_ALL
base=$1 name=$2 id=$3 verify=$4
shift 4
rel=$base/releases/$name/$id own=$base/meta/$name/$id old=''
if [ -d "$rel" ] && [ ! -d "$own" ]; then own=$rel old=yes; fi
tab='	'
nl='
'
echo "fleet-state 1"
now=''
if [ -L "$base/current/$name" ]; then
  now=$(readlink "$base/current/$name"); echo "current ${now##*/}"
fi
if [ -d "$rel" ] && [ ! -L "$rel" ] && [ -f "$own/.installed" ]; then echo "installed"; fi
if [ -n "$old" ]; then echo "old"; fi
if [ -f "$base/history/$name" ]; then
  while read -r past; do echo "history $past"; done < "$base/history/$name"
fi
if [ "$verify" != hash ] && [ "${now##*/}" = "$id" ] && [ -f "$own/.installed" ] && [ -f "$own/.seal" ]; then
  seal=$(cat "$own/.seal")
  case $seal in
    *"$own/manifest.json"*)
      if [ "$(find -L "$rel" "$own/.installed" "$own/env.sh" "$own/manifest.json" -type f -exec stat -L -c '%i %s %Y %Z %n' -- {} + 2>/dev/null)" = "$seal" ]; then
        echo "sealed"; echo "end"; exit 0
      fi ;;
  esac
fi
# The arguments of these are fours: sha256, size, key, name.
links_right() {
  [ -d "$rel" ] || return 0
  want='' n=$(($# / 4))
  while [ "$n" -gt 0 ]; do
    [ -e "$rel/$4" ] || return 1
    want=$want$nl$base/store/$1
    set -- "$@" "$rel/$4"; shift 4; n=$((n - 1))
  done
  [ "$nl$(readlink -- "$@" 2>/dev/null)" = "$want" ]
}
sizes_right() {
  want='' n=$(($# / 4))
  while [ "$n" -gt 0 ]; do
    if [ ! -f "$base/store/$1" ] || [ -L "$base/store/$1" ]; then return 1; fi
    want=$want$nl$2
    set -- "$@" "$base/store/$1"; shift 4; n=$((n - 1))
  done
  [ "$nl$(stat -c %s -- "$@" 2>/dev/null)" = "$want" ]
}
group() {
  links_right "$@"; linked=$?
  sizes_right "$@"; sized=$?
  while [ $# -gt 0 ]; do
    # A file that stands in the place of its link is none of ours.
    if [ $linked != 0 ] && { [ ! -e "$rel/$4" ] || [ "$(readlink "$rel/$4")" != "$base/store/$1" ]; }; then
      echo "unlinked $1"
    fi
    blob=$base/store/$1
    if [ -f "$own/.installed" ] && [ "$blob" -nt "$own/.installed" ] && [ "$verify" != hash ]; then
      echo "$1" >&3
    fi
    if [ $sized = 0 ]; then echo "have $1"
    elif [ -f "$blob" ] && [ ! -L "$blob" ]; then
      have=$(wc -c < "$blob")
      if [ "${have##* }" = "$2" ]; then echo "have $1"; else echo "bad $1"; fi
    else
      if [ -f "$blob.part" ]; then have=$(wc -c < "$blob.part"); echo "part $1 ${have##* }"
      elif [ -f "$base/store/$3.part" ]; then have=$(wc -c < "$base/store/$3.part"); echo "part $1 ${have##* } $3"; fi
      # What the live release has under this name; small files are not worth the question.
      if [ -n "$now" ] && [ ${#2} -ge 7 ]; then
        old=$(readlink "$base/current/$name/$4" 2>/dev/null)
        case $old in "$base/store/"*) echo "base $1 ${old##*/}" ;; esac
      fi
    fi
    shift 4
  done
}
# Blobs of the right size whose content is another one; host and device call them bad.
hashed() {
  seen=" "
  while read -r sha; do
    case $seen in *" $sha "*) continue ;; esac
    seen="$seen$sha "
    [ -f "$base/store/$sha" ] && [ $# -gt 0 ] || continue
    got=$("$@" < "$base/store/$sha"); got=${got##*= }
    if [ "${got%% *}" != "$sha" ]; then echo "bad $sha"; fi
  done
}
# By words, not by `read`: that of dash asks the kernel for every single byte.
listed() {
  set -f; IFS=$nl
  set --
  for line in $(cat); do
    rest=${line#*"$tab"} sha=${line%%"$tab"*}
    size=${rest%%"$tab"*} rest=${rest#*"$tab"}
    set -- "$@" "$sha" "$size" "${rest%%"$tab"*}" "${rest#*"$tab"}"
    if [ $# -ge 400 ]; then group "$@"; set --; fi
    if [ "$verify" = hash ]; then echo "$sha" >&3; fi
  done
  if [ $# -gt 0 ]; then group "$@"; fi
}
if [ -d "$base/store" ] || [ -d "$rel" ]; then
  { listed 3>&1 >&4 | hashed "$@"; } 4>&1
else
  cat > /dev/null
fi
echo "end"
