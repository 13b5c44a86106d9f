# Links a library under its unversioned name into fleet's own folder. $1 base, $2 name
# (libcdsprpc.so), $3 the versioned library, "" to look for it.
set -u
umask 022
PATH=$PATH:/usr/sbin:/sbin; export PATH
base=$1 name=$2 target=$3
if [ -z "$target" ]; then
  for dir in /usr/lib /usr/lib64 /lib /lib64 /usr/local/lib /usr/lib/aarch64-linux-gnu /usr/lib/x86_64-linux-gnu /vendor/lib64; do
    for f in "$dir/$name" "$dir/$name".[0-9]*; do [ -e "$f" ] && { target=$f; break 2; }; done
  done
fi
if [ -z "$target" ]; then
  target=$(ldconfig -p 2>/dev/null | while read -r one rest; do case $one in "$name" | "$name".[0-9]*) echo "${rest##* => }"; break ;; esac; done)
fi
if [ ! -e "${target:-/nonexistent}" ]; then echo "no $name, with or without a version, is on the device" >&2; exit 78; fi
mkdir -p "$base/shim" && point "$base/shim/$name" "$target" "$base/shim/.$name.new" || exit 74
echo "linked"
