# Puts blobs in place that the host has read back and found right. $1 base, $2 file|all|none.
# stdin: `<sha256> <mode>` per blob.
set -u
base=$1 syncing=$2
while read -r sha mode; do
  part=$base/store/$sha.part
  chmod "$mode" "$part" || exit 74
  case $syncing in file) sync "$part" ;; all) sync ;; esac
  [ ! -d "$base/store/$sha" ] || rm -rf "$base/store/$sha"
  mv -f "$part" "$base/store/$sha" || exit 74
done
