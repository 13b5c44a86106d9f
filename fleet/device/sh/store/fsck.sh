# What a base folder holds, each blob hashed. $1 list (no hashing), look, aside or passed, $2 base,
# $3 blocks of 64 KiB a second (0: as fast as it goes), $4 a word, then the argv of the hash tool.
# list, look: `current <name> <id>`, `history <name> <id>`, `release <name> <id> installed|staged`,
# `manifest <name> <id> <json>`, `link <name> <id> <where it leads><TAB><file>`, `blob <size>
# <sha256>`; then of each `hash <sha256> <hash>`, none where it cannot be read, and every second
# `at <sha256> <bytes>`. aside: blobs on stdin, a line each; one whose name lies is renamed to
# quarantine/<sha256>-<word>: `aside`, `kept` or `gone`. passed: <word> is kept for status.sh.
# No arithmetic on sizes of large files: mksh has 32 bits.
set -u
LC_ALL=C; export LC_ALL
umask 022
what=$1 base=$2 blocks=$3 word=$4
shift 4
tab='	'
nl='
'
echo "fleet-fsck 1"
if [ "$what" = passed ]; then
  # No file is opened that is there, nor what a link leads to.
  rm -f "$base/fsck.new"
  [ ! -d "$base/fsck" ] || rm -rf "$base/fsck"
  (set -C; echo "$word" > "$base/fsck.new") && mv -f "$base/fsck.new" "$base/fsck" || exit 74
  echo "end"; exit 0
fi
if [ "$what" != list ]; then
  renice -n 19 $$ > /dev/null 2>&1
  ionice -c 3 -p $$ > /dev/null 2>&1
fi
# What `alone` reads is told once a second, by the place in it.
watch() {
  while sleep 1 > /dev/null 2>&1; do
    pos=''
    while read -r key value; do
      if [ "$key" = pos: ]; then pos=$value; fi
    done 2>/dev/null < /proc/self/fdinfo/4
    echo "at $blob $pos"
  done
}
slowly() {
  exec 5>&1
  while :; do
    said=$(dd bs=65536 count="$blocks" <&4 2>&1 >&5)
    case $said in "0+0 "* | *"${nl}0+0 "*) return ;; esac
    sleep 1 > /dev/null 2>&1
  done
}
alone() {  # $1 blob, then the hash tool; its hash is $got, '' where it cannot be read
  blob=$1 got=''
  shift
  {
    watch &
    watcher=$!
    if [ "$blocks" = 0 ]; then got=$("$@" <&4); else got=$(slowly | "$@"); fi
    kill -9 $watcher  # a TERM right after the fork is lost in mksh
    wait $watcher
  } 2>/dev/null 4< "$blob"
  got=${got##*= }; got=${got%% *}
}
if [ "$what" = aside ]; then
  cd "$base/store" || exit 74
  for sha in $(cat); do
    case $sha in *[!0-9a-f]*) continue ;; esac
    if [ ! -f "$sha" ] || [ -L "$sha" ]; then echo "gone $sha"; continue; fi
    alone "$sha" "$@"
    if [ "$got" = "$sha" ]; then echo "kept $sha"; continue; fi
    to=$base/quarantine/$sha-$word
    mkdir -p "$base/quarantine" || exit 74
    while [ -e "$to" ] || [ -L "$to" ]; do to=$to-; done
    mv "$sha" "$to" || exit 74
    echo "aside $sha"
  done
  echo "end"; exit 0
fi
for link in "$base/current"/*; do
  [ -L "$link" ] || continue
  id=$(readlink "$link"); echo "current ${link##*/} ${id##*/}"
done
for past in "$base/history"/*; do
  [ -f "$past" ] || continue
  while read -r id || [ -n "$id" ]; do echo "history ${past##*/} $id"; done < "$past"
done
# All at once where readlink takes many; that of busybox takes one. No `echo` of names: that of
# dash and mksh reads backslashes.
group() {
  out='' n=0
  targets=$(readlink "$@" 2>/dev/null)
  for to in $targets; do n=$((n + 1)); done
  if [ $n = $# ]; then
    for to in $targets; do out="${out}link $name $id $to$tab${1#./}$nl"; shift; done
  else
    for path in "$@"; do out="${out}link $name $id $(readlink "$path" 2>/dev/null)$tab${path#./}$nl"; done
  fi
  printf '%s' "$out"
}
links() {
  set -f; IFS=$nl
  set --
  # shellcheck disable=SC2044 # split at line ends only, and without patterns
  for path in $(find . -type l); do
    set -- "$@" "$path"
    if [ $# -ge 16 ]; then group "$@"; set --; fi
  done
  if [ $# != 0 ]; then group "$@"; fi
}
for rel in "$base/releases"/*/*; do
  [ -d "$rel" ] || continue
  id=${rel##*/} name=${rel%/*} state=staged
  name=${name##*/}
  own=$base/meta/$name/$id
  [ -d "$own" ] || own=$rel
  if [ -f "$own/.installed" ]; then state=installed; fi
  echo "release $name $id $state"
  if [ -f "$own/manifest.json" ]; then
    printf 'manifest %s %s ' "$name" "$id"; tr '\n' ' ' < "$own/manifest.json"; echo
  fi
  (cd "$rel" && links)
done
listed=''
if [ -d "$base/store" ]; then
  cd "$base/store" || exit 74
  listed=$(ls -ln | while read -r mode _ _ _ size rest; do
    sha=${rest##* }
    case $mode in -*) ;; *) continue ;; esac
    case ${#sha}$sha in 64*[!0-9a-f]*) ;; 64*) echo "$size $sha" ;; esac
  done)
fi
set -f
IFS=$nl
for line in $listed; do echo "blob $line"; done
if [ "$what" = list ] || [ $# = 0 ]; then echo "end"; exit 0; fi
# Many small ones by one program; `debt`: blocks that were read and not yet waited for.
some='' count=0 debt=0
small() {
  if [ -z "$some" ]; then return; fi
  if [ "$1" = openssl ]; then
    for sha in $some; do
      alone "$sha" "$@"
      if [ -n "$got" ]; then echo "hash $sha $got"; fi
    done
  else
    for sum in $("$@" $some 2>/dev/null); do
      sha=${sum##* }
      echo "hash ${sha#\*} ${sum%% *}"
    done
  fi
  some='' count=0
  if [ "$blocks" = 0 ]; then return; fi
  while [ "$debt" -ge "$blocks" ]; do sleep 1; echo "at -"; debt=$((debt - blocks)); done
}
for line in $listed; do
  sha=${line#* } size=${line% *}
  case $size in
    ????????*)
      alone "$sha" "$@"
      if [ -n "$got" ]; then echo "hash $sha $got"; fi ;;
    *)
      some=$some$sha$nl count=$((count + 1)) debt=$((debt + size / 65536 + 1))
      if [ $count = 16 ] || { [ "$blocks" != 0 ] && [ "$debt" -ge "$blocks" ]; }; then small "$@"; fi ;;
  esac
done
small "$@"
echo "end"
