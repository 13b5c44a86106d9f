# Makes a release folder of links into the store, beside the live one.
# $1 base, $2 name, $3 id, $4 run id.
# stdin lines: `d<TAB>folder`, `f<TAB>sha256<TAB>name`, `e<TAB>line of env.sh`, then `m` and
# manifest.json as it is.
set -u
umask 022
# No file is opened that is there, nor what a link leads to.
set -C
base=$1 name=$2 id=$3 run=$4
tab='	'
nl='
'
rel=$base/releases/$name/$id
if [ -d "$rel" ]; then new=$rel; else new=$base/releases/$name/.stage-$run; rm -rf "$new"; fi
mkdir -p "$new" "$base/current" "$base/history" || exit 74
# Of one that was killed: where the input ends before `m` there is nothing to rename.
rm -f "$new/env.sh.new" "$new/manifest.json.new"
env=''
while IFS=$tab read -r kind one two; do
  case $kind in
    d) mkdir -p "$new/$one" || exit 74 ;;
    f)
      if [ ! -f "$base/store/$one" ]; then echo "blob $one of $two is gone" >&2; exit 78; fi
      if [ -L "$new/$two" ] || [ -e "$new/$two" ]; then
        if [ "$(readlink "$new/$two" 2>/dev/null)" = "$base/store/$one" ]; then continue; fi
        rm -f "$new/$two"
      fi
      ln -s "$base/store/$one" "$new/$two" || exit 74 ;;
    e) env=$env$one$nl ;;
    m)
      rm -f "$new/env.sh.new" "$new/manifest.json.new"
      printf '%s' "$env" > "$new/env.sh.new" && cat > "$new/manifest.json.new" || exit 74 ;;
  esac
done
mv -f "$new/env.sh.new" "$new/env.sh" && mv -f "$new/manifest.json.new" "$new/manifest.json" || exit 74
if [ "$new" != "$rel" ]; then mv "$new" "$rel" || exit 74; fi
echo "staged"
