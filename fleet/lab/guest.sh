#!/bin/sh
# At each boot of a kernel board, before its sshd: what the lab gave it on the second disk.
set -e
D=/run/lab
mkdir -p $D; tar -xf /dev/ubdb -C $D --no-same-owner
read -r NAME LOGIN MODE OWNER NODES < $D/board
ip link set lo up; ip link set vec0 up; ip addr add 10.0.2.15/24 dev vec0
hostname "$NAME"; echo "$NAME" > /etc/hostname
printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$NAME" > /etc/hosts
for n in $NODES; do
  mkdir -p "/dev/$(dirname "$n")"; mknod -m "$MODE" "/dev/$n" c 1 3; chown "$OWNER" "/dev/$n"
done
if [ ! -e /etc/fleet-lab-board ]; then
  cp -a --no-preserve=ownership $D/profile/root/. /
  while IFS= read -r path; do rm -rf "$path"; done < $D/profile/remove
  chpasswd < $D/chpasswd
fi
cp $D/lab-board /etc/fleet-lab-board
install -m 600 $D/ssh_host_ed25519_key /etc/ssh/
for home in /root "$(getent passwd "$LOGIN" | cut -d: -f6)"; do
  install -d -m 700 "$home/.ssh"; install -m 600 $D/authorized_keys "$home/.ssh/"
  chown -R --reference="$home" "$home/.ssh"
done
# What the profile says of /sys: the kernel's own stays for udev. See FLEET_SYSROOT in sshd's settings.
mkdir -p /run/lab-root
for d in /*; do [ "$d" = /sys ] || ln -sfn "$d" "/run/lab-root$d"; done
mv $D/profile/sys /run/lab-root/sys
