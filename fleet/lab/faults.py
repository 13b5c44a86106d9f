"""Faults: each changes the state of a board and lets the real tools complain."""

from __future__ import annotations

from dataclasses import dataclass

NODES = "/dev/fastrpc-cdsp /dev/fastrpc-cdsp-secure"
SMALL_MB = 2
OLD_RULE = "/etc/udev/rules.d/99-fastrpc-old.rules"


@dataclass(frozen=True)
class Fault:
    """A change of a namespace board as POSIX shell run as its root, and the way back.

    `bare`: only boards with the lab's own package repository can have it.
    """

    about: str
    make: str
    heal: str
    bare: bool = False


FAULTS: dict[str, Fault] = {
    "node-root-only": Fault(
        "the FastRPC nodes belong to root alone",
        f"chown root:root {NODES} && chmod 600 {NODES}",
        f"chown root:fastrpc {NODES} && chmod 660 {NODES}",
    ),
    "no-node": Fault(
        "there is no FastRPC node",
        f"rm -f {NODES}",
        f"for n in {NODES}; do mknod -m 660 $n c 1 3; chown root:fastrpc $n; done",
    ),
    "full-disk": Fault(
        f"the deploy folder is a disk of {SMALL_MB} MB, and full",
        "install -d -o ubuntu -g ubuntu /home/ubuntu/fleet && "
        f"mount -t tmpfs -o size={SMALL_MB}m,uid=1000,gid=1000 tmpfs /home/ubuntu/fleet && "
        "dd if=/dev/zero of=/home/ubuntu/fleet/filler bs=4096 2>/dev/null; true",
        "umount /home/ubuntu/fleet",
    ),
    "small-disk": Fault(
        "the deploy folder is a disk of 40 MB",
        "install -d -o ubuntu -g ubuntu /home/ubuntu/fleet && "
        "mount -t tmpfs -o size=40m,uid=1000,gid=1000 tmpfs /home/ubuntu/fleet",
        "umount /home/ubuntu/fleet",
    ),
    "read-only": Fault(
        "the deploy folder is mounted read-only",
        "install -d -o ubuntu -g ubuntu /home/ubuntu/fleet && "
        "mount -t tmpfs -o ro tmpfs /home/ubuntu/fleet",
        "umount /home/ubuntu/fleet",
    ),
    "wrong-soc": Fault(
        "the kernel reports a SoC that no table lists",
        "cp /sys/devices/soc0/soc_id /run/soc_id && echo 9999 > /sys/devices/soc0/soc_id && "
        "cp -r /sys/firmware/devicetree /run/ && rm -r /sys/firmware/devicetree/base/*",
        "cp /run/soc_id /sys/devices/soc0/soc_id && cp -r /run/devicetree /sys/firmware/",
    ),
    "no-python3": Fault(
        "python3 is not installed",
        "for f in /usr/bin/python3*; do mv $f $f.gone; done",
        "for f in /usr/bin/python3*.gone; do mv $f ${f%.gone}; done",
    ),
    "no-hash-tool": Fault(
        "no program computes SHA-256",
        "for f in sha256sum shasum openssl; do [ ! -e /usr/bin/$f ] || "
        "mv /usr/bin/$f /usr/bin/$f.gone; done",
        "for f in /usr/bin/*.gone; do mv $f ${f%.gone}; done",
    ),
    "left-group": Fault(
        "the deploy user is no member of fastrpc",
        "gpasswd -d ubuntu fastrpc >/dev/null",
        "usermod -aG fastrpc ubuntu",
    ),
    "foreign-qnn": Fault(
        "libqnn1 of the distribution is installed",
        "apt-get -q update && apt-get -y -q install libqnn1",
        "apt-get -y -q purge libqnn1",
        bare=True,
    ),
    "old-rule": Fault(
        "an administrator's stale rule keeps the nodes for root",
        f'echo \'KERNEL=="fastrpc-*", OWNER="root", GROUP="root", MODE="0600"\' > {OLD_RULE}; '
        "udevadm trigger",
        f"rm -f {OLD_RULE}; udevadm trigger",
        bare=True,
    ),
    "soname-only": Fault(
        "libcdsprpc.so.1 is there, its unversioned name is not",
        "ln -sf libatomic.so.1 /usr/lib/x86_64-linux-gnu/libcdsprpc.so.1",
        "rm -f /usr/lib/x86_64-linux-gnu/libcdsprpc.so.1",
    ),
    "repo-gone": Fault(
        "apt's source points to a folder that is not there",
        "mv /srv/lab-apt /srv/lab-apt.gone",
        "mv /srv/lab-apt.gone /srv/lab-apt",
        bare=True,
    ),
    "broken-dpkg": Fault(
        "a package was unpacked and never configured",
        "apt-get -q update && cd /tmp && apt-get -q download acl && dpkg --unpack acl_*.deb && "
        "rm acl_*.deb",
        "dpkg --configure -a",
        bare=True,
    ),
    "no-sudo": Fault(
        "sudo is not installed",
        "mv /usr/bin/sudo /usr/bin/sudo.gone",
        "mv /usr/bin/sudo.gone /usr/bin/sudo",
    ),
}
