# Which of the libraries $@ the loader of this device finds by itself: `there <name>` a line.
echo 'fleet-libraries 1'
cache=$( (PATH=$PATH:/usr/sbin:/sbin; ldconfig -p) 2>/dev/null)
for name in "$@"; do
  case $cache in *"	$name ("*) echo "there $name"; continue ;; esac
  for dir in /lib /lib64 /usr/lib /usr/lib64 /usr/local/lib /lib/*-linux-gnu /usr/lib/*-linux-gnu \
    /system/lib64 /vendor/lib64 /apex/*/lib64 /apex/*/lib64/bionic; do
    if [ -e "$dir/$name" ]; then echo "there $name"; break; fi
  done
done
echo end
