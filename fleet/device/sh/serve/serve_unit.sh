# A unit of the deploy user's own systemd. $1 `start` (stdin: the unit), `stop`; $2 name of the unit.
set -u
umask 022
do=$1 unit=$2
if [ -z "${XDG_RUNTIME_DIR:-}" ] && [ -d "/run/user/$(id -u)" ]; then
  XDG_RUNTIME_DIR=/run/user/$(id -u); export XDG_RUNTIME_DIR
fi
folder=${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user
case $do in
  start)
    mkdir -p "$folder" || exit 74
    rm -f "$folder/.$unit.new"
    # No file is opened that is there, nor what a link leads to.
    set -C
    cat > "$folder/.$unit.new" && mv -f "$folder/.$unit.new" "$folder/$unit" || exit 74
    systemctl --user daemon-reload && systemctl --user enable -- "$unit" \
      && systemctl --user restart -- "$unit" || exit 75 ;;
  stop)
    systemctl --user disable -- "$unit" && systemctl --user stop -- "$unit" || exit 75 ;;
esac
echo "done"
