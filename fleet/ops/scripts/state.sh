# What a device has of one release. $1 base, $2 name, $3 id, $4 "hash" to re-hash blobs,
# then the argv of the hash tool. stdin: `<sha256><TAB><size><TAB><name>` per file of the release.
set -u
LC_ALL=C; export LC_ALL
base=$1 name=$2 id=$3 verify=$4
shift 4
rel=$base/releases/$name/$id
tab=$(printf '\t')
echo "fleet-state 1"
if [ -L "$base/current/$name" ]; then
  now=$(readlink "$base/current/$name"); echo "current ${now##*/}"
fi
if [ -f "$rel/.installed" ]; then echo "installed"; fi
if [ -f "$base/history/$name" ]; then
  while read -r past; do echo "history $past"; done < "$base/history/$name"
fi
seen=" "
while IFS=$tab read -r sha size file; do
  # A file that stands in the place of its link is none of ours.
  if [ -d "$rel" ] && { [ ! -e "$rel/$file" ] || [ "$(readlink "$rel/$file")" != "$base/store/$sha" ]; }; then
    echo "unlinked $sha"
  fi
  case $seen in *" $sha "*) continue ;; esac
  seen="$seen$sha "
  blob=$base/store/$sha
  if [ -f "$blob" ]; then
    have=$(wc -c < "$blob")
    if [ "${have##* }" != "$size" ]; then echo "bad $sha"; continue; fi
    if [ "$verify" = hash ]; then
      got=$("$@" < "$blob"); got=${got##*= }
      if [ "${got%% *}" != "$sha" ]; then echo "bad $sha"; continue; fi
    fi
    echo "have $sha"
  elif [ -f "$blob.part" ]; then
    have=$(wc -c < "$blob.part"); echo "part $sha ${have##* }"
  fi
done
echo "end"
