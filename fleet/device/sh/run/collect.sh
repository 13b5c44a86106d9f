# Gives files of a work folder, after a mark, and removes the folder. $1 work folder, then names
# or patterns relative to it. `file <bytes> <name>`, the bytes, a newline; `end`.
set -u
work=$1
shift
echo fleet-file
status=44
if cd "$work" 2>/dev/null; then
  for pattern in "$@"; do
    # shellcheck disable=SC2086 # patterns of ours, without blanks
    for name in $pattern; do
      if [ ! -f "$name" ] || [ -L "$name" ]; then continue; fi
      size=$(wc -c < "$name")
      echo "file ${size##* } $name"
      cat "$name"; echo
      status=0
    done
  done
fi
echo end
cd / && rm -rf "$work"
exit $status
