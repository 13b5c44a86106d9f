# Which of the libraries before -- the loader of this device finds by itself, and which of the
# programs behind it the shell finds: `there <name>` a line.
echo 'fleet-libraries 1'
cache=$( (PATH=$PATH:/usr/sbin:/sbin; ldconfig -p) 2>/dev/null)
while [ $# -gt 0 ]; do
  name=$1
  shift
  if [ "$name" = -- ]; then break; fi
  case $cache in *"	$name ("*) echo "there $name"; continue ;; esac
  for dir in /lib /lib64 /usr/lib /usr/lib64 /usr/local/lib /lib/*-linux-gnu /usr/lib/*-linux-gnu \
    /system/lib64 /vendor/lib64 /apex/*/lib64 /apex/*/lib64/bionic; do
    if [ -e "$dir/$name" ]; then echo "there $name"; break; fi
  done
done
for name in "$@"; do
  if command -v "$name" >/dev/null 2>&1; then echo "there $name"; fi
done
echo end
