# After ground.sh, inside new namespaces: a board's system, of which this becomes pid 1.
# $3 name, $4 names of device nodes, $5 their mode, $6 their owner, $7 user of the login, $8 what
# runs a program of the tree ("" for nothing)
NAME=$3 NODES=$4 MODE=$5 OWNER=$6 LOGIN=$7 RUN=$8
ln -s fd/0 "$M/dev/stdin"; ln -s fd/1 "$M/dev/stdout"; ln -s fd/2 "$M/dev/stderr"
mount -t tmpfs -o mode=1777 lab-shm "$M/dev/shm"
# A node that opens like the real one for a member of the group; there is no DSP behind it.
for n in $NODES; do node "$n" "$MODE" 1 3; chroot "$M" $RUN /usr/bin/chown "$OWNER" "/dev/$n"; done
# What the factory gave; later changes of the board stay over power cycles.
if [ ! -e "$D/rw/factory" ]; then
  cp -a --no-preserve=ownership "$D/profile/root/." "$M/"
  while IFS= read -r path; do rm -rf "${M:?}$path"; done < "$D/profile/remove"
  : > "$D/rw/factory"
fi
if [ -e "$M/usr/local/bin/udevadm" ] &&
    grep -qrs -e rpc -e dma_heap "$M"/etc/udev "$M"/usr/lib/udev; then
  chroot "$M" /usr/local/bin/udevadm trigger --action=add 2>/dev/null
fi
for unit in "$M"/etc/systemd/system/*.wants/*; do
  [ ! -L "$unit" ] || { mkdir -p "$M/run/lab-units"; : > "$M/run/lab-units/${unit##*/}"; }
done
[ -s "$M/etc/machine-id" ] || tr -d - < /proc/sys/kernel/random/uuid > "$M/etc/machine-id"
cp "$D/lab-board" "$M/etc/fleet-lab-board"
HOME_DIR=/home/$LOGIN; [ "$LOGIN" != root ] || HOME_DIR=/root
mkdir -p "$M/run/sshd" "$M$HOME_DIR/.ssh"
cp "$D/ssh_host_ed25519_key" "$M/etc/ssh/"; chmod 600 "$M/etc/ssh/ssh_host_ed25519_key"
cp "$D/authorized_keys" "$M$HOME_DIR/.ssh/authorized_keys"
chroot "$M" $RUN /usr/bin/chown -R "$LOGIN:$LOGIN" "$HOME_DIR/.ssh"
[ ! -f "$D/chpasswd" ] || chroot "$M" $RUN /usr/sbin/chpasswd < "$D/chpasswd"
chroot "$M" $RUN /usr/bin/ip link set lo up; hostname "$NAME"
echo "$NAME" > "$M/etc/hostname"; printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$NAME" > "$M/etc/hosts"
cat /proc/sys/kernel/random/uuid > "$M/run/boot_id"
mount --bind "$M/run/boot_id" "$M/proc/sys/kernel/random/boot_id"
