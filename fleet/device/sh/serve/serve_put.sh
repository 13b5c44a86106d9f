# Prepares a service: its folder, its token, its configuration, the link to its release.
# $1 base, $2 name, $3 release id, $4 `new` to replace a token that is there.
# stdin: one line with a token, then config.json.
set -u
umask 077
# No file is opened that is there, nor what a link leads to.
set -C
base=$1 name=$2 id=$3 fresh=$4
dir=$base/serve/$name
mkdir -p "$dir" && chmod 700 "$base/serve" "$dir" || exit 74
rm -f "$dir/token.new" "$dir/config.new"
IFS= read -r token || exit 65
if [ "$fresh" = new ] || [ ! -s "$dir/token" ]; then
  printf '%s\n' "$token" > "$dir/token.new" && mv -f "$dir/token.new" "$dir/token" || exit 74
fi
if [ -n "$id" ]; then
  cat > "$dir/config.new" && mv -f "$dir/config.new" "$dir/config.json" || exit 74
  rm -f "$dir/release" "$dir/failed" "$dir/restarts"
  ln -s "$base/releases/$name/$id" "$dir/release" || exit 74
fi
echo "put"
