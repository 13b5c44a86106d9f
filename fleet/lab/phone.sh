# Inside new namespaces: builds a phone's root and becomes its pid 1, which keeps adbd running.
# $1 phone folder, $2 Android-like root, $3 name, $4 names of device nodes, $5 path of adbd
set -e
D=$1 BASE=$2 NAME=$3 NODES=$4 ADBD=$5
M=$D/root
mkdir -p "$M" "$D/rw"
layer() {
  mkdir -p "$D/rw/upper" "$D/rw/work"
  mount -t overlay overlay -o "lowerdir=$BASE,upperdir=$D/rw/upper,workdir=$D/rw/work" "$M"
}
UPPER=disk
layer 2>/dev/null || { UPPER=memory; mount -t tmpfs -o mode=755 lab-rw "$D/rw"; layer; }
mount -t proc proc "$M/proc"
mount -t tmpfs -o mode=755 lab-dev "$M/dev"
node() { mknod -m "$2" "$M/dev/$1" c "$3" "$4"; }
node null 666 1 3; node zero 666 1 5; node full 666 1 7
node random 666 1 8; node urandom 666 1 9; node tty 666 5 0
mkdir -p "$M/dev/pts" "$M/dev/dma_heap"
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$M/dev/pts"
ln -s pts/ptmx "$M/dev/ptmx"; ln -s /proc/self/fd "$M/dev/fd"
mount -t tmpfs -o mode=755 lab-run "$M/run"
mount -t tmpfs -o mode=755 lab-sys "$M/sys"
cp -a "$D/profile/sys/." "$M/sys/"
for n in $NODES; do node "$n" 664 1 3; chown 1000:1000 "$M/dev/$n"; done
if [ ! -e "$D/rw/factory" ]; then
  cp -a --no-preserve=ownership "$D/profile/root/." "$M/"
  : > "$D/rw/factory"
fi
cp "$D/lab-board" "$M/etc/fleet-lab-board"
ip link set lo up; hostname "$NAME"
cat /proc/sys/kernel/random/uuid > "$M/run/boot_id"
mount --bind "$M/run/boot_id" "$M/proc/sys/kernel/random/boot_id"
echo $UPPER > "$M/run/lab-upper"
echo ready > "$M/run/lab-ready"
cd "$M"
# As init does: adbd runs as the shell user, and comes back when it ends.
exec chroot --userspec=2000:2000 --groups=2000,1004,1007,1011 "$M" /system/bin/env -i \
  PATH=/system/bin:/vendor/bin HOME=/ TMPDIR=/data/local/tmp ANDROID_ROOT=/system ANDROID_DATA=/data \
  ADBD_PORT=5555 /system/bin/sh -c 'cd /; while :; do "$0"; sleep 0.2; done' "$ADBD"
