# Takes many blobs from one stream. $1 base, $2 framed|single, $3 file|all|none (how to sync),
# then the argv of the hash tool (none: the host reads back).
# stdin: a line `<sha256> <size> <offset> <mode>`, then size-offset bytes, and again.
set -u
LC_ALL=C; export LC_ALL
umask 022
base=$1 framing=$2 syncing=$3
shift 3
store=$base/store
if ! why=$(mkdir -p "$store" 2>&1); then echo "failed - $why"; exit 74; fi
block=1048576
take() {  # $1 bytes
  if [ "$framing" = single ]; then cat; return; fi
  if [ "$1" -ge $block ]; then dd bs=$block count=$(($1 / block)) iflag=fullblock || return; fi
  if [ $(($1 % block)) -gt 0 ]; then dd bs=$(($1 % block)) count=1 iflag=fullblock; fi
}
size_of() { if [ -f "$1" ]; then set -- "$(wc -c < "$1")"; echo $(($1)); else echo 0; fi; }
status=0
while read -r sha size offset mode; do
  part=$store/$sha.part
  # A link, folder or pipe that stands here is not ours: nothing is written through it.
  if [ -L "$part" ] || { [ -e "$part" ] && [ ! -f "$part" ]; }; then rm -rf "$part"; fi
  have=$(size_of "$part")
  if [ "$have" -ne "$offset" ]; then
    if [ "$offset" -ne 0 ]; then echo "moved $sha $have"; exit 75; fi
    rm -f "$part"
  fi
  if ! why=$( { take $((size - offset)) >> "$part"; } 2>&1 ); then
    why=$(printf '%s' "$why" | grep -v -e 'records' -e 'bytes' | tr '\n' ' ')
    echo "failed $sha $why"; exit 74
  fi
  have=$(size_of "$part")
  if [ "$have" -ne "$size" ]; then echo "short $sha $have"; exit 76; fi
  if [ $# -gt 0 ]; then
    got=$("$@" < "$part"); got=${got##*= }
    if [ "${got%% *}" != "$sha" ]; then
      echo "bad $sha ${got%% *}"; rm -f "$part"; status=77; continue
    fi
  else
    echo "unhashed $sha"; continue
  fi
  chmod "$mode" "$part"
  case $syncing in file) sync "$part" ;; all) sync ;; esac
  mv -f "$part" "$store/$sha" || { echo "failed $sha rename"; exit 74; }
  echo "ok $sha"
done
exit $status
