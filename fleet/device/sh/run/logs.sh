# The ends of logs, after a mark. $1 base folder ("" for the default), $2 journal, dmesg, logcat,
# service, with blanks between, or "" for what such a device has; $3 lines of each, $4 how many
# seconds back ("" for all). `<kind> | <line>`; `<kind> ! <words>`: why it is not all, or none;
# `uptime <seconds>`, by which the caller cuts what dmesg and logcat say.
LC_ALL=C; export LC_ALL
base=$1 kinds=$2 lines=$3 since=$4
echo fleet-file
has() { command -v "$1" >/dev/null 2>&1; }
show() {
  kind=$1
  shift
  if ! has "$1"; then echo "$kind ! the device has no program $1"; return; fi
  { { "$@" 2>&1 >&4 4>&- < /dev/null | sed "s/^/$kind ! /" >&3; } 4>&1 \
    | tail -n "$lines" | sed "s/^/$kind | /"; } 3>&1
}
# Of a device without systemd. Times are compared as text: ISO, or `Nov  3 18:22:00`.
syslog() {
  for f in /var/log/syslog /var/log/messages; do
    [ ! -r "$f" ] || { cat "$f"; return; }
  done
  logread
}
young() {
  syslog | awk -v iso="$(date -d "@$1" +%Y-%m-%dT%T)" -v old="$(date -d "@$1" '+%b %e %T')" \
    '/^[0-9]/ { if ($0 >= iso) print; next } $0 >= old'
}
if [ -z "$kinds" ]; then
  if has logcat; then kinds='logcat dmesg service'; else kinds='journal dmesg service'; fi
fi
read -r up _ 2>/dev/null < /proc/uptime && echo "uptime $up"
for kind in $kinds; do
  case $kind in
    journal) if { has journalctl && [ -d /run/systemd/system ]; } || ! syslog > /dev/null 2>&1; then
      show journal journalctl --no-pager -o short-iso -n "$lines" ${since:+"--since=-${since}s"}
    elif [ -n "$since" ]; then show journal young $(($(date +%s) - since))
    else show journal syslog; fi ;;
    dmesg) show dmesg dmesg ;;
    logcat) show logcat logcat -d ${since:+-v threadtime -v uptime} ;;
    service)
      if [ -z "$base" ]; then
        base=${FLEET_BOARD_HOME:-${HOME:-}}/fleet
        if has logcat; then base=/data/local/tmp/fleet; fi
      fi
      found=''
      for f in "$base"/serve/*/log; do
        if [ -e "$f" ]; then found=1; show service tail -n "$lines" "$f"; fi
      done
      if [ -z "$found" ]; then echo "service ! no service has a log in $base/serve"; fi ;;
  esac
done
echo end
