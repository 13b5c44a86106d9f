# What is deployed under a base folder. $1 base.
set -u
base=$1
echo "fleet-status 1"
for link in "$base/current"/*; do
  [ -L "$link" ] || continue
  name=${link##*/}; id=$(readlink "$link"); id=${id##*/}
  rel=$base/releases/$name/$id own=$base/meta/$name/$id
  [ -d "$own" ] || own=$rel
  state=damaged
  if [ -d "$rel" ] && [ -f "$own/.installed" ] && [ -f "$own/manifest.json" ]; then state=installed; fi
  broken=$(find "$rel" -type l ! -exec test -e {} \; -print 2>/dev/null | wc -l); broken=$((broken))
  [ "$broken" -gt 0 ] && state=damaged
  echo "name $name $id $state $broken"
  made=$(stat -c %Y -- "$own/.installed" 2>/dev/null) && echo "made $name $made"
  if [ -f "$base/history/$name" ]; then
    while read -r past; do echo "history $name $past"; done < "$base/history/$name"
  fi
  if [ -f "$own/manifest.json" ]; then printf 'manifest %s ' "$name"; tr '\n' ' ' < "$own/manifest.json"; echo; fi
done
if [ -f "$base/fsck" ]; then
  read -r passed < "$base/fsck"
  echo "fsck $passed"
fi
echo "end"
