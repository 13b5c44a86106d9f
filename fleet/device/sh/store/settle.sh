# The end of stage.sh and stage_tar.sh. What is fleet's gets its place in meta/ first: a release
# folder without it is one of an earlier fleet, whose files are among those of the user.
own=$base/meta/$name/$id
if [ ! -d "$rel" ] || [ -L "$rel" ] || [ -L "$own" ] || [ ! -d "$own" ]; then rm -rf "$own"; fi
if [ -d "$own" ]; then
  # mv would go into a folder, also through a link.
  for file in env.sh manifest.json; do [ ! -d "$own/$file" ] || rm -rf "${own:?}/$file"; done
  mv -f "$new/own/env.sh" "$own/env.sh" && mv -f "$new/own/manifest.json" "$own/manifest.json" || exit 74
else
  if [ ! -L "$rel" ] && [ -f "$rel/.installed" ] && [ "$(cat "$rel/.installed")" = "$id" ]; then
    cp -p "$rel/.installed" "$new/own/.installed" || exit 74
  fi
  mv "$new/own" "$own" || exit 74
fi
if [ ! -d "$rel" ] || [ -L "$rel" ]; then
  rm -f "$rel"
  mv "$new/tree" "$rel" || exit 74
fi
rm -rf "$new"
echo "staged"
