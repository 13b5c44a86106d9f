# Which large files may be sent before their hash is known: no blob has their size, and the live
# release has nothing of their name. $1 base, $2 name. stdin: `<key><TAB><size><TAB><name>` a line.
# Answers with the key, and how much is there under it.
set -u
LC_ALL=C; export LC_ALL
base=$1 name=$2
tab='	'
nl='
'
lines() { (set -f; IFS=$nl; set -- $1; echo $#); }
echo "fleet-ahead 1"
blobs=$(find "$base/store" -type f ! -name '*.part' 2>/dev/null)
sizes=$(find "$base/store" -type f ! -name '*.part' -exec stat -c %s -- {} + 2>/dev/null)
# Without stat nothing is known: then each waits for its hash.
if [ "$(lines "$blobs")" != "$(lines "$sizes")" ]; then echo "end"; exit 0; fi
while IFS=$tab read -r key size file; do
  case $nl$sizes$nl in *"$nl$size$nl"*) continue ;; esac
  if [ -e "$base/current/$name/$file" ] || [ -L "$base/current/$name/$file" ]; then continue; fi
  have=0
  if [ -f "$base/store/$key.part" ]; then have=$(wc -c < "$base/store/$key.part"); fi
  echo "$key ${have##* }"
done
echo "end"
