# Makes a staged release the current one, in one rename. $1 base, $2 name, $3 id, $4 run id.
set -u
umask 022
base=$1 name=$2 id=$3 run=$4
rel=$base/releases/$name/$id
if [ ! -f "$rel/manifest.json" ]; then echo "release $id is not there" >&2; exit 78; fi
printf '%s\n' "$id" > "$rel/.installed.new" && mv -f "$rel/.installed.new" "$rel/.installed" || exit 74
# Name, inode, size and times of every file: who finds them so later need not look closer.
find -L "$rel" -type f ! -name '.seal*' -exec stat -L -c '%i %s %Y %Z %n' -- {} + \
  > "$rel/.seal.new" 2>/dev/null && mv -f "$rel/.seal.new" "$rel/.seal" || rm -f "$rel/.seal" "$rel/.seal.new"
link=$base/current/.$name.$run
rm -f "$link"
ln -s "../releases/$name/$id" "$link" || exit 74
sync -f "$rel/manifest.json" 2>/dev/null
mv -T -f "$link" "$base/current/$name" || { rm -f "$link"; exit 74; }
sync -f "$base/current" 2>/dev/null
printf '%s\n' "$id" >> "$base/history/$name" || exit 74
echo "switched"
