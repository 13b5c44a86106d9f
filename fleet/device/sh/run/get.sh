# Files for the workstation, after a mark. $1 list or send, $2 a file or folder; `~/` is the home.
# list: records that end with `//` and a newline, which no name contains. `folder` where $2 is one;
# `is <mode, hex> <bytes> <name>` of everything in it, names relative to it; `unread <name>` or
# `gone <name>` of what cannot be had; `found <exit status of find>`; `end`. A record may come twice.
# A link is followed only where it is $2 itself.
# send: stdin `<first block> <blocks> <rest> <bytes> ./<name>//` of each file, in blocks of 64 KiB; a
# name may hold newlines. Of each file one answer: pieces `file <bytes> <number>`, the bytes, a
# newline, and then `hash <number> <sha256 of the whole file>`; or `now <number> <bytes>`, the file
# has another size; or `not <number> link|gone|odd|unread`. `end` after all. A piece has as many
# bytes as it says, zeros for those that a file lost meanwhile. Sizes are texts: mksh counts in 32 bits.
LC_ALL=C; export LC_ALL
what=$1 path=$2
nl='
'
# shellcheck disable=SC2088 # the tilde is ours to expand
case $path in '~/'*) path=${HOME:-}/${path#??} ;; esac
echo fleet-file
if [ -f "$path" ]; then
  case $path in */*) cd -- "${path%/*}/" || exit 44 ;; esac
  only=./${path##*/}
else
  cd -- "$path" || exit 44
  only=''
fi
if [ "$what" = list ]; then
  # shellcheck disable=SC2016 # for the other shell
  each='about() { stat $FLEET_STAT -c "is %f %s %n//" -- "$@" 2>/dev/null; }
  if ! stat -c %s . > /dev/null 2>&1; then
    about() {
      if [ -L "$1" ] && [ -z "$FLEET_STAT" ]; then k=a000
      elif [ -f "$1" ]; then k=8000; s=$(wc -c < "$1"); s=${s##* }
      elif [ -d "$1" ]; then k=4000
      elif [ -e "$1" ]; then k=1000
      else return 1; fi
      printf "is $k ${s:-0} %s//\n" "$1"
      shift
      [ $# = 0 ] || about "$@"
    }
  fi
  about "$@" || for f do about "$f" || printf "gone %s//\n" "$f"; done
  for f do
    if [ -L "$f" ] || [ ! -e "$f" ]; then continue; fi
    if [ -r "$f" ]; then [ ! -d "$f" ] || [ -x "$f" ] || printf "unread %s//\n" "$f"
    else printf "unread %s//\n" "$f"; fi
  done'
  FLEET_STAT=''; export FLEET_STAT
  if [ -n "$only" ]; then FLEET_STAT=-L; sh -c "$each" fleet "$only"; status=0
  else echo folder//; find . -exec sh -c "$each" fleet {} +; status=$?; fi
  echo "found $status//"; echo end//; exit 0
fi
for sha in sha256sum 'toybox sha256sum' 'busybox sha256sum' 'shasum -a 256'; do
  # shellcheck disable=SC2086 # a program and its arguments
  if $sha < /dev/null > /dev/null 2>&1; then break; fi
done
size_of() {
  stat -L -c %s -- "$1" 2>/dev/null || { bytes=$(wc -c < "$1"); echo "${bytes##* }"; }
}
give() {  # $1 bytes of a block, $2 blocks to skip, $3 blocks
  said=$(dd bs="$1" skip="$2" count="$3" conv=sync <&3 2>&1 >&4)
  count=${said%% records in*}; count=${count##*"$nl"}
  case $count in *+*) ;; *) echo "$said" >&2; exit 74 ;; esac
  lacks=$(($3 - ${count%%+*} - ${count##*+}))
  if [ "$lacks" != 0 ]; then dd if=/dev/zero bs="$1" count="$lacks" 2>/dev/null >&4; fi
}
pieces() {
  while [ "$blocks" -gt 0 ] && [ "$lacks" = 0 ]; do
    piece=$blocks
    if [ "$piece" -gt 256 ]; then piece=256; fi
    echo "file $((piece * 65536)) $number"
    give 65536 "$first" "$piece"
    echo
    first=0 blocks=$((blocks - piece))
  done
  if [ "$rest" != 0 ] && [ "$lacks" = 0 ]; then
    echo "file $rest $number"
    give "$rest" 0 1
    echo
  fi
}
exec 4>&1
number=0
while IFS= read -r line; do
  until [ "${line%//}" != "$line" ]; do IFS= read -r more || exit 74; line=$line$nl$more; done
  first=${line%% *} line=${line#* }
  blocks=${line%% *} line=${line#* }
  rest=${line%% *} line=${line#* }
  size=${line%% *} name=${line#* }
  name=${name%//} why='' lacks=0
  if [ -L "$name" ] && [ "$name" != "$only" ]; then why='link'
  elif [ ! -e "$name" ]; then why=gone
  elif [ ! -f "$name" ]; then why=odd
  elif [ ! -r "$name" ]; then why=unread
  fi
  if [ -n "$why" ]; then echo "not $number $why"
  elif [ "$(size_of "$name")" != "$size" ] || ! pieces 3< "$name" || [ "$lacks" != 0 ]; then
    echo "now $number $(size_of "$name")"
  else
    got=$($sha < "$name")
    echo "hash $number ${got%% *}"
  fi
  number=$((number + 1))
done
echo end
