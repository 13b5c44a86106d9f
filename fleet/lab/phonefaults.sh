# What the faults of phones in faults.yaml share.
fleet=/data/local/tmp/fleet

mount_deploy() {
    mkdir -p $fleet && mount -t tmpfs -o "$1" tmpfs $fleet
}

unmount_deploy() {
    umount $fleet && rmdir $fleet 2>/dev/null
    true
}
