# Takes many blobs from one stream, where there is no Python for blobs.py.
# $1 base, $2 framed|single, $3 file|all|none (how to sync), then the argv of the hash tool (none:
# the host reads back).
# stdin: a line `<sha256> <size> <offset> <mode> <blocks> <rest> <coding> <end>`, then the bytes
# (that many blocks of 1 MiB and a rest), and again. With them the file has <end> bytes; where that
# is not its size it stays a .part. No arithmetic on sizes here: mksh has 32 bits. A ninth word is
# the name of the part; of a blob named `?` the hash follows its bytes: `is <sha256>`.
# coding: raw, gzip, or delta:<sha256 of the old blob>.
# `batch <count> tar|cpio 0 <blocks> <rest>`: an archive of small blobs, named `<mode>/<sha256>`,
# and of what the hash tool says of each folder when all is right: `<mode>.sums`.
# On phones, once the blobs are there (the scripts of those names stand before this one):
# `stage <name> <id> <run> <blocks> <rest> cpio` and that archive, `switch <name> <id> <run>`,
# `prune <name> <keep> <blobs>`.
set -u
LC_ALL=C; export LC_ALL
umask 022
base=$1 framing=$2 syncing=$3
shift 3
store=$base/store
nl='
'
if ! why=$(mkdir -p "$store" 2>&1); then echo "failed - $why"; exit 74; fi
take() {  # $1 blocks, $2 rest
  if [ "$framing" = single ]; then cat; return; fi
  if [ "$1" != 0 ]; then dd bs=1048576 count="$1" iflag=fullblock || return; fi
  if [ "$2" != 0 ]; then dd bs="$2" count=1 iflag=fullblock; fi
}
# $1 old blob, $2 number of lines, each `copy <first block> <blocks of 64 KiB>` out of the old
# blob or `take <blocks> <rest>` and those bytes.
patch() {
  left=$2
  while [ "$left" -gt 0 ]; do
    read -r kind one two || return
    case $kind in
      copy) dd if="$1" bs=65536 skip="$one" count="$two" || return ;;
      *) take "$one" "$two" || return ;;
    esac
    left=$((left - 1))
  done
}
body() {
  case $coding in
    gzip) take "$blocks" "$rest" | gzip -dc ;;
    delta:*) patch "$store/${coding#delta:}" "$blocks" ;;
    *) take "$blocks" "$rest" ;;
  esac
}
# Only where the file ends with these bytes, and most of it comes now: a link that breaks often
# would have what is there hashed each time.
worth_following() {
  [ "$framing $coding $end" = "framed raw $size" ] && [ $# != 0 ] && [ "$blocks" -ge 64 ] || return
  case $offset in ???????*) [ "${offset%??????}" -le "$blocks" ] ;; esac
}
# $1 blocks, $2 rest into the .part, the hash tool close behind: it prints the hash at the end.
# What reads the .part is told how much of it is there. The pipe takes half of the hash's processor time again.
along() {
  left=$1 rest=$2 all=$1
  shift 2
  {
    case $offset in ???????*) echo "1000000 ${offset%??????}" ;; esac
    while [ "$left" -gt 0 ]; do
      piece=$((left / 4 + 4))
      if [ "$piece" -gt $((all / 8 + 1)) ]; then piece=$((all / 8 + 1)); fi
      if [ "$piece" -gt "$left" ]; then piece=$left; fi
      take "$piece" 0 >> "$part" || exit
      echo "1048576 $piece"
      left=$((left - piece))
      echo "took ${key:-$sha} $((all - left))" >&3
    done
    take 0 "$rest" >> "$part"
    if [ "$(size_of "$part")" = "$end" ]; then echo all; fi
  } | {
    while read -r unit count <&4; do
      case $unit in all) cat ;; *) dd bs="$unit" count="$count" 2>/dev/null ;; esac
    done
  } 4<&0 < "$part" | "$@"
}
digest() {
  got=$("$@" < "$part"); got=${got##*= }; echo "${got%% *}"
}
size_of() {
  bytes=0
  if [ -f "$1" ]; then bytes=$(wc -c < "$1"); fi
  echo "${bytes##* }"
}
# The reason without dd's counts, in one line; no tool: one that lacks would hide it.
say_why() {
  left=$1 said=''
  while [ -n "$left" ]; do
    line=${left%%"$nl"*}
    case $left in *"$nl"*) left=${left#*"$nl"} ;; *) left='' ;; esac
    case $line in *records* | *bytes*) ;; *) said="$said$line " ;; esac
  done
  echo "$said"
}
each() {  # the same file by file; $1 what the hash tool said
  # By words, not by `read`: that of dash asks the kernel for every single byte.
  got='' wrong=0
  set -f; IFS=" $nl"
  for word in $1; do
    if [ -z "$got" ]; then got=$word; continue; fi
    name=${word#\*}
    if [ "$got" = "$name" ]; then echo "ok $got"; else echo "bad $name $got" >&3; rm -f "$name"; wrong=1; fi
    got=''
  done
  return $wrong
}
unpack() { case $1 in cpio) cpio -id ;; *) tar -xf - ;; esac }
batch() {  # $1 blocks, $2 rest, $3 tar or cpio, then the hash tool
  blocks=$1 rest=$2 kind=$3 in=$store/.batch.part
  shift 3
  rm -rf "$in"
  if ! why=$(mkdir "$in" 2>&1); then echo "failed - $why"; exit 74; fi
  if ! why=$( { take "$blocks" "$rest" | (cd "$in" && unpack "$kind"); } 2>&1 ); then
    # What follows in the stream belongs to the archive; it is of no use any more.
    echo "failed - $(say_why "$why")"; exit 74
  fi
  for folder in "$in"/*; do
    [ -d "$folder" ] && cd "$folder" || continue
    sums=$("$@" -- *)
    if [ "$sums" = "$(cat "$folder.sums")" ]; then right="oks $(echo *)"; else right=$(each "$sums") || status=77; fi
    [ -n "$right" ] || continue
    chmod "${folder##*/}" -- * || exit 74
    # Once for all of them: file by file costs a journal commit each.
    if [ "$syncing" != none ]; then sync -f . 2>/dev/null || sync; fi
    mv -f -- * "$store/" || { echo "failed - rename"; exit 74; }
    echo "$right"
  done
  cd "$base" && rm -rf "$in"
}
# Stage, switch or prune in a shell of its own; $1 which, then its arguments.
step() {
  if [ "$status" != 0 ]; then cat > /dev/null; exit $status; fi
  doing=$1
  why=$("$@" 2>&1 >&3)
  code=$?
  if [ $code = 0 ]; then return; fi
  if [ "$doing" = prune ]; then echo "unpruned $(say_why "$why")"; return; fi
  echo "failed $doing $(say_why "$why")"; exit $code
}
exec 3>&1
status=0
while read -r sha size offset mode blocks rest coding end key; do
  case $sha in
    batch) batch "$blocks" "$rest" "$offset" "$@"; continue ;;
    stage) take "$blocks" "$rest" | step stage "$base" "$size" "$offset" "$mode" "$coding" || exit; continue ;;
    switch) step switch "$base" "$size" "$offset" "$mode" < /dev/null; continue ;;
    prune) step prune "$base" "$size" "$offset" "$mode" < /dev/null; continue ;;
  esac
  part=$store/${key:-$sha}.part
  # A link, folder or pipe that stands here is not ours: nothing is written through it.
  if [ -L "$part" ] || { [ -e "$part" ] && [ ! -f "$part" ]; }; then rm -rf "$part"; fi
  have=$(size_of "$part")
  if [ "$have" != "$offset" ]; then
    if [ "$offset" != 0 ]; then echo "moved $sha $have"; exit 75; fi
    rm -f "$part"
  fi
  # One that got its mode and, by a power cut, no name.
  [ ! -e "$part" ] || chmod 600 "$part"
  got=''
  if worth_following "$@" && : >> "$part"; then
    said=$(along "$blocks" "$rest" "$@" 2>&1)
    got=${said##*"$nl"}
    why=$(say_why "${said%"$got"}")
    if [ -n "$why" ] && [ "$(size_of "$part")" != "$end" ]; then echo "failed $sha $why"; exit 74; fi
    got=${got##*= }; got=${got%% *}
  elif ! why=$( { body >> "$part"; } 2>&1 ); then
    echo "failed $sha $(say_why "$why")"; exit 74
  fi
  have=$(size_of "$part")
  if [ "$have" != "$end" ]; then echo "short $sha $have"; exit 76; fi
  if [ "$end" != "$size" ]; then echo "kept $sha"; continue; fi
  if [ "$sha" = '?' ]; then read -r _ sha || { echo "short ? $have"; exit 76; }; fi
  if [ $# = 0 ]; then echo "unhashed $sha"; continue; fi
  # What follows a file while it grows may have stumbled: its hash alone calls nothing bad.
  if [ "$got" != "$sha" ]; then got=$(digest "$@"); fi
  if [ "$got" != "$sha" ]; then echo "bad $sha $got"; rm -f "$part"; status=77; continue; fi
  chmod "$mode" "$part"
  case $syncing in file) sync "$part" ;; all) sync ;; esac
  [ ! -d "$store/$sha" ] || rm -rf "${store:?}/$sha"
  mv -f "$part" "$store/$sha" || { echo "failed $sha rename"; exit 74; }
  echo "ok $sha"
done
exit $status
