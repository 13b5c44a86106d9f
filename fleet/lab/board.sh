# Inside new namespaces: builds the board's root and becomes its pid 1.
# $1 board folder, $2 base rootfs, $3 name, $4 names of device nodes, $5 their mode,
# $6 their owner, $7 user of the login
set -e
D=$1 BASE=$2 NAME=$3 NODES=$4 MODE=$5 OWNER=$6 LOGIN=$7
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
ln -s fd/0 "$M/dev/stdin"; ln -s fd/1 "$M/dev/stdout"; ln -s fd/2 "$M/dev/stderr"
mount -t tmpfs -o mode=1777 lab-shm "$M/dev/shm"
mount -t tmpfs -o mode=755 lab-run "$M/run"
mount -t tmpfs -o mode=755 lab-sys "$M/sys"
cp -a "$D/profile/sys/." "$M/sys/"
# A node that opens like the real one for a member of the group; there is no DSP behind it.
for n in $NODES; do node "$n" "$MODE" 1 3; chroot "$M" chown "$OWNER" "/dev/$n"; done
# What the factory gave; later changes of the board stay over power cycles.
if [ ! -e "$D/rw/factory" ]; then
  cp -a --no-preserve=ownership "$D/profile/root/." "$M/"
  while IFS= read -r path; do rm -rf "${M:?}$path"; done < "$D/profile/remove"
  : > "$D/rw/factory"
fi
[ ! -e "$M/usr/local/bin/udevadm" ] || chroot "$M" /usr/local/bin/udevadm trigger --action=add 2>/dev/null
for unit in "$M"/etc/systemd/system/*.wants/*; do
  [ ! -L "$unit" ] || { mkdir -p "$M/run/lab-units"; : > "$M/run/lab-units/${unit##*/}"; }
done
[ -s "$M/etc/machine-id" ] || tr -d - < /proc/sys/kernel/random/uuid > "$M/etc/machine-id"
cp "$D/lab-board" "$M/etc/fleet-lab-board"
HOME_DIR=/home/$LOGIN; [ "$LOGIN" != root ] || HOME_DIR=/root
mkdir -p "$M/run/sshd" "$M$HOME_DIR/.ssh"
cp "$D/ssh_host_ed25519_key" "$M/etc/ssh/"; chmod 600 "$M/etc/ssh/ssh_host_ed25519_key"
cp "$D/authorized_keys" "$M$HOME_DIR/.ssh/authorized_keys"
chroot "$M" chown -R "$LOGIN:$LOGIN" "$HOME_DIR/.ssh"
[ ! -f "$D/chpasswd" ] || chroot "$M" chpasswd < "$D/chpasswd"
ip link set lo up; hostname "$NAME"
echo "$NAME" > "$M/etc/hostname"; printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$NAME" > "$M/etc/hosts"
cat /proc/sys/kernel/random/uuid > "$M/run/boot_id"
mount --bind "$M/run/boot_id" "$M/proc/sys/kernel/random/boot_id"
cd "$M"; mkdir -p .old; pivot_root . .old; umount -l /.old; rmdir /.old
hash -r
echo $UPPER > /run/lab-upper
echo ready > /run/lab-ready
exec sleep infinity
