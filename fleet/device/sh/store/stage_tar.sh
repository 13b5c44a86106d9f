# Makes a release folder of links into the store, beside the live one, from one archive.
# $1 base, $2 name, $3 id, $4 run id, $5 cpio for one, else tar. stdin: that, with tree/ (folders,
# links), own/ (env.sh, manifest.json), `files`: `sha256<TAB>name` a line, and `end`.
set -u
umask 022
base=$1 name=$2 id=$3 run=$4 kind=$5
tab='	'
nl='
'
# By words, not by `read`: that of dash asks the kernel for every single byte.
set -f
IFS=$tab$nl
rel=$base/releases/$name/$id
new=$base/releases/$name/.stage-$run
if [ -e "$new" ] || [ -L "$new" ]; then rm -rf "$new"; fi
mkdir -p "$base/releases/$name" "$base/meta/$name" "$base/current" "$base/history" \
  && mkdir "$new" || exit 74
# busybox calls every absolute link unsafe; ours lead into the store.
EXTRACT_UNSAFE_SYMLINKS=1; export EXTRACT_UNSAFE_SYMLINKS
case $kind in cpio) (cd "$new" && cpio -id) ;; *) tar -C "$new" -xf - ;; esac || exit 74
# Some tar take a stream that was cut between two files for a whole one.
if [ ! -e "$new/end" ]; then echo "the archive was cut" >&2; exit 76; fi
sha=''
for word in $(cat "$new/files"); do
  if [ -z "$sha" ]; then sha=$word; continue; fi
  if [ ! -L "$new/tree/$word" ] || [ ! -f "$new/tree/$word" ]; then
    if [ ! -f "$base/store/$sha" ]; then echo "$word ($(printf %.12s "$sha")) is missing in the store of the device" >&2; exit 78; fi
    echo "tar made no link $word" >&2; exit 74
  fi
  sha=''
done
IFS=$nl
# It is there already, and may be in use: only what differs is put right, each by a rename.
if [ -d "$rel" ] && [ ! -L "$rel" ]; then
  for folder in $(cd "$new/tree" && find . -type d); do
    if [ -L "$rel/$folder" ] || [ ! -d "$rel/$folder" ]; then
      rm -f "$rel/$folder"
      mkdir "$rel/$folder" || exit 74
    fi
  done
  for line in $(cat "$new/files"); do
    sha=${line%%"$tab"*} file=${line#*"$tab"}
    if [ "$(readlink "$rel/$file" 2>/dev/null)" != "$base/store/$sha" ]; then
      if [ -d "$rel/$file" ]; then rm -rf "${rel:?}/$file"; fi
      mv -f "$new/tree/$file" "$rel/$file" || exit 74
    fi
  done
fi
