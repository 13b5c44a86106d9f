# Files for the workstation, after a mark. $1 list or send, $2 a file or folder; `~/` is the home.
# list: `folder` where $2 is one; `file <bytes> <name>` of each, relative to the folder, `link`, `odd` or `unread <name>` of
# what is none that can be sent, `end`. A link is followed only where it is $2 itself.
# send: stdin `<first byte, from 1> <bytes> ./<name>/` a line; of each `file <bytes> <number>`, the
# bytes, a newline, `hash <sha256>` of the whole file; `end`.
LC_ALL=C; export LC_ALL
what=$1 path=$2
# shellcheck disable=SC2088 # the tilde is ours to expand
case $path in '~/'*) path=${HOME:-}/${path#??} ;; esac
echo fleet-file
if [ -f "$path" ]; then
  case $path in */*) cd -- "${path%/*}/" || exit 44 ;; esac
  name=${path##*/}
else
  cd -- "$path" || exit 44
  name=''
fi
if [ "$what" = list ]; then
  # shellcheck disable=SC2016 # for the other shell
  each='for f do
    n=${f#./}
    case $n in *"
"*) echo "odd ?"; continue ;; esac
    if [ -L "$f" ] && [ "$f" != "$FLEET_NAME" ]; then echo "link $n"
    elif [ ! -f "$f" ]; then echo "odd $n"
    elif [ ! -r "$f" ]; then echo "unread $n"
    else s=$(wc -c < "$f"); echo "file ${s##* } $n"; fi
  done'
  FLEET_NAME=$name; export FLEET_NAME
  if [ -n "$name" ]; then sh -c "$each" fleet "$name"
  else echo folder; find . ! -type d -exec sh -c "$each" fleet {} +; fi
  echo end; exit 0
fi
for sha in sha256sum 'toybox sha256sum' 'busybox sha256sum' 'shasum -a 256'; do
  # shellcheck disable=SC2086 # a program and its arguments
  if $sha < /dev/null > /dev/null 2>&1; then break; fi
done
number=0
while read -r first bytes name; do
  name=${name%/}
  echo "file $bytes $number"
  if [ "$bytes" != 0 ]; then tail -c "+$first" < "$name" | head -c "$bytes"; fi
  echo
  got=$($sha < "$name")
  echo "hash ${got%% *}"
  number=$((number + 1))
done
echo end
