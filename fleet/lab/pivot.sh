# The end of the boot: $M becomes the root of pid 1.
set -e
cd "$M"; mkdir -p .old; pivot_root . .old; umount -l /.old; rmdir /.old
hash -r
[ ! -x /sbin/syslogd ] || /sbin/syslogd
echo $UPPER > /run/lab-upper
echo ready > /run/lab-ready
exec sleep infinity
