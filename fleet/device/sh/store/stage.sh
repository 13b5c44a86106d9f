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
new=$base/releases/$name/.stage-$run
tree=$new/tree
if [ -e "$new" ] || [ -L "$new" ]; then rm -rf "$new"; fi
mkdir -p "$base/releases/$name" "$base/meta/$name" "$base/current" "$base/history" \
  && mkdir "$new" "$new/tree" "$new/own" || exit 74
if [ -d "$rel" ] && [ ! -L "$rel" ]; then tree=$rel; fi
env='' whole=''
while IFS=$tab read -r kind one two; do
  case $kind in
    d)
      if [ -L "$tree/$one" ] || [ ! -d "$tree/$one" ]; then rm -f "$tree/$one"; fi
      mkdir -p "$tree/$one" || exit 74 ;;
    f)
      if [ ! -f "$base/store/$one" ]; then echo "$two ($(printf %.12s "$one")) is missing in the store of the device" >&2; exit 78; fi
      if [ -L "$tree/$two" ] || [ -e "$tree/$two" ]; then
        if [ "$(readlink "$tree/$two" 2>/dev/null)" = "$base/store/$one" ]; then continue; fi
        rm -rf "${tree:?}/$two"
      fi
      ln -s "$base/store/$one" "$tree/$two" || exit 74 ;;
    e) env=$env$one$nl ;;
    m)
      printf '%s' "$env" > "$new/own/env.sh" && cat > "$new/own/manifest.json" || exit 74
      whole=yes ;;
  esac
done
# Where the input ends before `m` it was cut.
[ -n "$whole" ] || { echo "the list was cut" >&2; exit 74; }
