# shellcheck shell=bash
# In new namespaces, as pid 1: a user-mode Linux and its tap, again after each `reboot` of it.
# $1 the board's folder, $2 the disk that boards share, $3 MiB of memory
set -e
mount -t tmpfs lab-run /run; mount -t tmpfs -o mode=1777 lab-shm /dev/shm
ip link set lo up; ip tuntap add tap0 mode tap; ip addr add 10.0.2.1/24 dev tap0; ip link set tap0 up
mkdir -p "$1/rw"; rm -rf "$1/uml"
echo disk > /run/lab-upper; : > /run/lab-ready
export TMPDIR=/dev/shm
# `reboot` of the guest starts argv[0] anew, with the tap still open: here that only says 7.
printf '#!/bin/sh\nexit 7\n' > /run/again; chmod 755 /run/again
while :; do
  end=0
  (exec -a /run/again linux.uml umid=lab "uml_dir=$1/uml/" mem="$3M" "ubd0=$1/rw/cow,$2" \
    "ubd1r=$1/own.tar" root=/dev/ubda rw vec0:transport=tap,ifname=tap0,depth=128,gro=1 \
    con=null con0=null,fd:1 con1=null,fd:1 ssl=null net.ifnames=0 pty.legacy_count=0 \
    console=tty0 systemd.show_status=0 random.trust_cpu=on) || end=$?
  [ "$end" = 7 ] || exit "$end"
done
