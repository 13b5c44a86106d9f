# Gives blobs of the store names in a folder. $1 base, $2 folder. stdin: `<sha256><TAB><name>`.
set -u
umask 022
base=$1 folder=$2
tab=$(printf '\t')
mkdir -p "$folder" || exit 74
while IFS=$tab read -r sha name; do
  if [ ! -f "$base/store/$sha" ]; then echo "$name ($(printf %.12s "$sha")) is missing in the store of the device" >&2; exit 78; fi
  rm -f "$folder/$name"
  ln -s "$base/store/$sha" "$folder/$name" || exit 74
done
echo "placed"
