# The ground of every board and phone: a root of its own over a shared tree, /proc, /dev, /run, /sys.
# $1 its folder, $2 the tree
set -e
D=$1 BASE=$2
M=$D/root
mkdir -p "$M" "$D/rw"
layer() {
  mkdir -p "$D/rw/upper" "$D/rw/work"
  mount -t overlay overlay -o "lowerdir=$BASE,upperdir=$D/rw/upper,workdir=$D/rw/work" "$M"
}
# Some file systems cannot be an upper layer (overlayfs itself, NFS): then memory has to do.
UPPER=disk
layer 2>/dev/null || { UPPER=memory; mount -t tmpfs -o mode=755 lab-rw "$D/rw"; layer; }
mount -t proc proc "$M/proc"
mount -t tmpfs -o mode=755 lab-dev "$M/dev"
node() { mknod -m "$2" "$M/dev/$1" c "$3" "$4"; }
node null 666 1 3; node zero 666 1 5; node full 666 1 7
node random 666 1 8; node urandom 666 1 9; node tty 666 5 0
mkdir -p "$M/dev/pts" "$M/dev/shm" "$M/dev/dma_heap"
mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$M/dev/pts"
ln -s pts/ptmx "$M/dev/ptmx"; ln -s /proc/self/fd "$M/dev/fd"
mount -t tmpfs -o mode=755 lab-run "$M/run"
mount -t tmpfs -o mode=755 lab-sys "$M/sys"
cp -a "$D/profile/sys/." "$M/sys/"
