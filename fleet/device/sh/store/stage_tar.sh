# Makes a release folder of links into the store, beside the live one, from one archive.
# $1 base, $2 name, $3 id, $4 run id. stdin: tar with folders, links, `.files`: `sha256<TAB>name`
# a line, env.sh, manifest.json and `.end`.
set -u
umask 022
base=$1 name=$2 id=$3 run=$4
tab='	'
nl='
'
# By words, not by `read`: that of dash asks the kernel for every single byte.
set -f
IFS=$nl
rel=$base/releases/$name/$id
new=$base/releases/$name/.stage-$run
if [ -e "$new" ] || [ -L "$new" ]; then rm -rf "$new"; fi
mkdir -p "$new" "$base/current" "$base/history" || exit 74
# busybox calls every absolute link unsafe; ours lead into the store.
EXTRACT_UNSAFE_SYMLINKS=1 tar -C "$new" -xf - || exit 74
# Some tar take a stream that was cut between two files for a whole one.
if [ ! -e "$new/.end" ]; then echo "the archive was cut" >&2; exit 76; fi
for line in $(cat "$new/.files"); do
  sha=${line%%"$tab"*} file=${line#*"$tab"}
  if [ ! -f "$base/store/$sha" ]; then echo "blob $sha of $file is gone" >&2; exit 78; fi
  if [ ! -L "$new/$file" ] || [ ! -e "$new/$file" ]; then echo "tar made no link $file" >&2; exit 74; fi
done
if [ ! -d "$rel" ]; then
  rm -f "$new/.files" "$new/.end"
  mv "$new" "$rel" || exit 74
  echo "staged"; exit 0
fi
# It is there already, and may be in use: only what differs is put right, each by a rename.
for line in $(cat "$new/.files"); do
  sha=${line%%"$tab"*} file=${line#*"$tab"}
  if [ "$(readlink "$rel/$file" 2>/dev/null)" != "$base/store/$sha" ]; then
    case $file in */*) mkdir -p "$rel/${file%/*}" || exit 74 ;; esac
    if [ -d "$rel/$file" ] && [ ! -L "$rel/$file" ]; then rm -rf "${rel:?}/$file"; fi
    mv -f "$new/$file" "$rel/$file" || exit 74
  fi
done
mv -f "$new/env.sh" "$rel/env.sh" && mv -f "$new/manifest.json" "$rel/manifest.json" || exit 74
rm -rf "$new"
echo "staged"
