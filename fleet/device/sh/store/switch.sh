# Makes a staged release the current one, in one rename. $1 base, $2 name, $3 id, $4 run id.
set -u
umask 022
# No file is opened that is there, nor what a link leads to.
set -C
base=$1 name=$2 id=$3 run=$4
rel=$base/releases/$name/$id own=$base/meta/$name/$id
past=$base/history/$name new=$base/history/.$name.new
# Whole or not at all: a line that a full disk cut would hide the next one.
note() {
  [ ! -d "$past" ] || rm -rf "$past"
  { [ ! -f "$past" ] || cat "$past"; echo "$1"; } > "$new" && mv -f "$new" "$past" || exit 74
}
rm -rf "$new"
# What an earlier fleet made and switched to has its marks among the user's files, and keeps them.
mark=manifest.json
[ -d "$own" ] || { own=$rel mark=.installed; }
if [ ! -d "$rel" ] || [ ! -f "$own/$mark" ]; then echo "release $id is not there" >&2; exit 78; fi
# A switch that was killed before its line: what is live would be unknown to prune and rollback.
now=$(readlink "$base/current/$name" 2>/dev/null); now=${now##*/}
last=''
if [ -f "$past" ]; then while read -r one; do last=$one; done < "$past"; fi
if [ -n "$now" ] && [ "$now" != "$last" ]; then note "$now"; fi
if [ "$own" != "$rel" ]; then
  # mv would go into a folder, also through a link.
  rm -rf "$own/.installed.new" "$own/.seal.new" "$own/.seal"
  [ ! -d "$own/.installed" ] || rm -rf "$own/.installed"
  echo "$id" > "$own/.installed.new" && mv -f "$own/.installed.new" "$own/.installed" || exit 74
  # Name, inode, size and times of every file: who finds them so later need not look closer.
  find -L "$rel" "$own/.installed" "$own/env.sh" "$own/manifest.json" -type f \
    -exec stat -L -c '%i %s %Y %Z %n' -- {} + > "$own/.seal.new" 2>/dev/null \
    && mv -f "$own/.seal.new" "$own/.seal" || rm -f "$own/.seal.new"
fi
# The environment for people who log in, at a path that stays over releases: it follows current/.
quoted=$base
case $base in *"'"*) quoted=$(printf '%s' "$base" | sed "s/'/'\\\\''/g") ;; esac
text="# The environment of the live release of $name, by fleet. In a shell: . $base/env/$name.sh
QNN_SDK_ROOT=\$(cd '$quoted/current/$name' && pwd -P) &&
  . '$quoted/meta/$name/'\"\${QNN_SDK_ROOT##*/}\"/env.sh &&
  export QNN_SDK_ROOT PATH=\"\$QNN_SDK_ROOT/bin:\$QNN_SDK_ROOT:\$PATH\""
if [ ! -f "$base/env/$name.sh" ] || [ "$(cat "$base/env/$name.sh" 2>/dev/null)" != "$text" ]; then
  [ ! -d "$base/env/$name.sh" ] || rm -rf "${base:?}/env/$name.sh"
  mkdir -p "$base/env" && rm -rf "$base/env/.$name.new" && printf '%s\n' "$text" > "$base/env/.$name.new" \
    && mv -f "$base/env/.$name.new" "$base/env/$name.sh" || exit 74
fi
# What a kill left of switches of this name: our link; the link, or empty file, of toybox's ln.
for one in "$base/current/.$name".* "$base/current/$name"_??????; do
  if [ -L "$one" ]; then case $(readlink "$one") in "../releases/$name/"*) rm -f "$one" ;; esac
  elif [ -f "$one" ] && [ ! -s "$one" ]; then rm -f "$one"; fi
done
sync -f "$own/manifest.json" 2>/dev/null
point "$base/current/$name" "../releases/$name/$id" "$base/current/.$name.$run" || exit 74
sync -f "$base/current" 2>/dev/null
if [ "$id" != "$now" ]; then note "$id"; fi
echo "switched"
