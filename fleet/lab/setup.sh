# shellcheck shell=bash
# In new namespaces, as pid 1: dpkg of a tree installs packages there. No network and no service of
# this computer is within reach of their scripts. $1 the tree, $2 the folder of the packages
set -e
T=$1
mount -t proc proc "$T/proc"
for n in "null 3" "zero 5" "full 7" "random 8" "urandom 9"; do
  mknod -m 666 "$T/dev/${n% *}" c 1 "${n#* }"
done
mknod -m 666 "$T/dev/tty" c 5 0; ln -s /proc/self/fd "$T/dev/fd"
mkdir -p "$T/mnt"; mount --bind "$2" "$T/mnt"
mkdir -p "$T/var/lib/dpkg/info" "$T/var/lib/dpkg/updates" "$T/var/lib/dpkg/triggers"
touch "$T/var/lib/dpkg/status" "$T/var/lib/dpkg/available"
printf '#!/bin/sh\nexit 101\n' > "$T/usr/sbin/policy-rc.d"; chmod 755 "$T/usr/sbin/policy-rc.d"
base=() rest=()
for deb in "$2"/*.deb; do
  if dpkg-deb -f "$deb" Essential | grep -q yes; then base+=("/mnt/${deb##*/}"); else rest+=("/mnt/${deb##*/}"); fi
done
inside() {
  chroot "$T" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
    DEBCONF_NONINTERACTIVE_SEEN=true LC_ALL=C.UTF-8 "$@"
}
inside dpkg --force-depends --force-unsafe-io --install "${base[@]}"
inside dpkg --force-depends --force-unsafe-io --install "${rest[@]}"
inside dpkg --configure -a
inside dpkg --audit
rm "$T/usr/sbin/policy-rc.d"
