# After ground.sh, inside new namespaces: a phone's system, of which this becomes pid 1; it keeps
# adbd running. $3 name, $4 names of device nodes, $5 path of adbd
NAME=$3 NODES=$4 ADBD=$5
for n in $NODES; do node "$n" 664 1 3; chown 1000:1000 "$M/dev/$n"; done
if [ ! -e "$D/rw/factory" ]; then
  cp -a --no-preserve=ownership "$D/profile/root/." "$M/"
  : > "$D/rw/factory"
fi
cp "$D/lab-board" "$M/etc/fleet-lab-board"
chroot "$M" /system/bin/ifconfig lo up; hostname "$NAME"
cat /proc/sys/kernel/random/uuid > "$M/run/boot_id"
mount --bind "$M/run/boot_id" "$M/proc/sys/kernel/random/boot_id"
echo $UPPER > "$M/run/lab-upper"
echo ready > "$M/run/lab-ready"
cd "$M" || exit 1
# As init does: adbd runs as the shell user, and comes back when it ends.
exec chroot --userspec=2000:2000 --groups=2000,1004,1007,1011 "$M" /system/bin/env -i \
  PATH=/system/bin:/vendor/bin HOME=/ TMPDIR=/data/local/tmp ANDROID_ROOT=/system ANDROID_DATA=/data \
  ADBD_PORT=5555 /system/bin/sh -c 'cd /; while :; do "$0"; sleep 0.2; done' "$ADBD"
