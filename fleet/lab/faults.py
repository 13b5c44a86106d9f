"""Faults: each changes the state of a board and lets the real tools complain."""

from __future__ import annotations

import base64

from fleet.lab.elf import fastrpc_library
from fleet.lab.faultbase import Fault
from fleet.lab.handfaults import HAND_FAULTS
from fleet.lab.packages import LIB

SMALL_MB = 2
OLD_RULE = "/etc/udev/rules.d/99-fastrpc-old.rules"
_PPA = "/srv/lab-apt/ubuntu-qcom-iot/qcom-ppa"
_SONAME = "libcdsprpc.so.1"
_SAVE_NODES = (
    "[ -e /run/lab-nodes ] || stat -c '%a %u:%g %n' /dev/fastrpc-* > /run/lab-nodes 2>/dev/null"
)
_FOLDER = 'install -d -o "$1" -g "$1" "$2/fleet" && mount -t tmpfs '
_OWN = 'uid=$(id -u "$1"),gid=$(id -g "$1")'
_ROOT_FOLDERS = "etc usr var opt home root srv tmp"
_HOLD = """
import fcntl, os, signal, sys
near, far = os.pipe()
pid = os.fork()
if pid:
    os.close(far)
    held = os.read(near, 1)
    open("/run/lab-held-dpkg", "w").write(str(pid))
    sys.exit(not held)
os.close(near)
for name in ("lock-frontend", "lock"):
    handle = os.open("/var/lib/dpkg/" + name, os.O_RDWR | os.O_CREAT, 0o640)
    fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
os.setsid()
null = os.open("/dev/null", os.O_RDWR)
for fd in (0, 1, 2):
    os.dup2(null, fd)
os.write(far, b"1")
os.close(far)
signal.pause()
"""


_HEAT = "/sys/class/thermal/thermal_zone*/temp"
_LIMITS = "/sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq"

_HAS_DPKG = ("command -v dpkg && command -v apt-get", "it has no dpkg")
_HAS_REPOSITORY = (
    "test -e /etc/apt/sources.list.d/lab.sources && command -v apt-get",
    "its apt knows no repository",
)

FAULTS: dict[str, Fault] = {
    "node-root-only": Fault(
        "the FastRPC nodes belong to root alone",
        f"{_SAVE_NODES}; chown root:root /dev/fastrpc-* && chmod 600 /dev/fastrpc-*",
        "[ -e /run/lab-nodes ] || exit 0; while read -r mode owner node; do "
        'chown "$owner" "$node"; chmod "$mode" "$node"; done < /run/lab-nodes; rm /run/lab-nodes',
    ),
    "no-node": Fault(
        "there is no FastRPC node",
        f"{_SAVE_NODES}; rm -f /dev/fastrpc-*",
        "[ -e /run/lab-nodes ] || exit 0; while read -r mode owner node; do "
        '[ -e "$node" ] || mknod "$node" c 1 3; chown "$owner" "$node"; chmod "$mode" "$node"; '
        "done < /run/lab-nodes; rm /run/lab-nodes",
    ),
    "full-disk": Fault(
        f"the deploy folder is a disk of {SMALL_MB} MB, and full",
        f'{_FOLDER} -o "size={SMALL_MB}m,{_OWN}" tmpfs "$2/fleet" && '
        'dd if=/dev/zero of="$2/fleet/filler" bs=4096 2>/dev/null; true',
        'umount "$2/fleet"',
    ),
    "small-disk": Fault(
        "the deploy folder is a disk of 40 MB",
        f'{_FOLDER} -o "size=40m,{_OWN}" tmpfs "$2/fleet"',
        'umount "$2/fleet"',
    ),
    "read-only": Fault(
        "the deploy folder is mounted read-only",
        f'{_FOLDER} -o ro tmpfs "$2/fleet"',
        'umount "$2/fleet"',
    ),
    "full-root": Fault(
        "the root file system is full",
        "mkdir -p /run/lab-full && mount -t tmpfs -o size=1m,mode=755 lab-full /run/lab-full && "
        f"cd /run/lab-full && for d in {_ROOT_FOLDERS}; do mkdir -p $d/upper $d/work; "
        "chmod --reference=/$d $d/upper; chown --reference=/$d $d/upper; mount -t overlay lab-full "
        "-o lowerdir=/$d,upperdir=/run/lab-full/$d/upper,workdir=/run/lab-full/$d/work /$d "
        "|| exit 1; done; dd if=/dev/zero of=filler bs=4096 2>/dev/null; true",
        f"for d in {_ROOT_FOLDERS}; do umount -l /$d; done; umount -l /run/lab-full",
        "! mountpoint -q /run/lab-full",
        "it is full already",
    ),
    "wrong-soc": Fault(
        "the kernel reports a SoC that no table lists",
        "cp /sys/devices/soc0/soc_id /run/soc_id && echo 9999 > /sys/devices/soc0/soc_id && "
        "cp -r /sys/firmware/devicetree /run/ && rm -r /sys/firmware/devicetree/base/*",
        "cp /run/soc_id /sys/devices/soc0/soc_id && cp -r /run/devicetree /sys/firmware/",
    ),
    "cdsp-offline": Fault(
        "the compute DSPs are not running",
        'for d in /sys/class/remoteproc/*; do case $(cat "$d/name") in '
        'cdsp*) echo offline > "$d/state" ;; esac; done',
        'for d in /sys/class/remoteproc/*; do case $(cat "$d/name") in '
        'cdsp*) echo running > "$d/state" ;; esac; done',
    ),
    "hot": Fault(
        "every thermal zone says 95 °C, and the clocks of the CPU are limited to half",
        f"mkdir -p /run/lab-hot && cd /run/lab-hot && for f in {_HEAT} {_LIMITS}; do "
        '[ -e ".$f" ] || { mkdir -p ".${f%/*}" && cp "$f" ".$f"; }; done && '
        f"for f in {_HEAT}; do echo 95000 > $f; done; "
        f"for f in {_LIMITS}; do echo $(($(cat .$f) / 2)) > $f; done",
        "[ -d /run/lab-hot ] || exit 0; cp -r /run/lab-hot/sys/. /sys/ && rm -r /run/lab-hot",
        f"ls {_HEAT}",
        "it has no thermal zone",
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
        "for f in sha256sum shasum openssl; do [ ! -e /usr/bin/$f.gone ] || "
        "mv /usr/bin/$f.gone /usr/bin/$f; done",
    ),
    "no-sudo": Fault(
        "sudo is not installed",
        "mv /usr/bin/sudo /usr/bin/sudo.gone",
        "mv /usr/bin/sudo.gone /usr/bin/sudo",
        "test -e /usr/bin/sudo",
        "it has no sudo",
    ),
    "left-group": Fault(
        "the deploy user is no member of fastrpc",
        'gpasswd -d "$1" fastrpc >/dev/null',
        'usermod -aG fastrpc "$1"',
        'id -nG "$1" | grep -qw fastrpc',
        "its user is no member of fastrpc",
    ),
    "wrong-group": Fault(
        "the group fastrpc exists, the user is in it, and no rule gives it the nodes",
        'groupadd --system fastrpc && usermod -aG fastrpc "$1"',
        "groupdel fastrpc",
        "! getent group fastrpc",
        "the group fastrpc is in use there",
        bare=True,
    ),
    "old-rule": Fault(
        "an administrator's stale rule keeps the nodes for root",
        f'echo \'KERNEL=="fastrpc-*", OWNER="root", GROUP="root", MODE="0600"\' > {OLD_RULE}; '
        "udevadm trigger --action=add",
        f"rm -f {OLD_RULE}; udevadm trigger --action=add",
        bare=True,
    ),
    "soname-only": Fault(
        f"{_SONAME} is there, its unversioned name is not",
        f"cd {LIB} && if [ -e libcdsprpc.so ]; then mv libcdsprpc.so libcdsprpc.so.gone; else "
        f"echo {base64.b64encode(fastrpc_library(_SONAME)).decode()} | base64 -d > {_SONAME}; "
        "fi && ldconfig",
        f"cd {LIB} && if [ -e libcdsprpc.so.gone ]; then mv libcdsprpc.so.gone libcdsprpc.so; "
        f"else rm -f {_SONAME}; fi && ldconfig",
        f"[ -e {LIB}/libcdsprpc.so ] || ! ldconfig -p | grep -q libcdsprpc",
        "it is so already",
    ),
    "foreign-qnn": Fault(
        "libqnn1 of the distribution is installed",
        f"apt-get -y -q install {_PPA}/libqnn1_*.deb",
        "apt-get -y -q purge libqnn1",
        *_HAS_DPKG,
        bare=True,
    ),
    "held-dpkg": Fault(
        "another process holds dpkg's lock, as unattended upgrades do",
        f"python3 -c '{_HOLD}'",
        "[ ! -e /run/lab-held-dpkg ] || kill $(cat /run/lab-held-dpkg); rm -f /run/lab-held-dpkg",
        *_HAS_DPKG,
    ),
    "broken-dpkg": Fault(
        "a package was unpacked and never configured",
        "dpkg --unpack /srv/lab-apt/debian/acl_*.deb",
        "dpkg --configure -a && dpkg --purge acl",
        "command -v dpkg && ! test -e /usr/bin/setfacl",
        "it has no dpkg, or acl is installed already",
        bare=True,
    ),
    "repo-gone": Fault(
        "apt's source points to a folder that is not there",
        "mv /srv/lab-apt /srv/lab-apt.gone",
        "mv /srv/lab-apt.gone /srv/lab-apt",
        *_HAS_REPOSITORY,
        bare=True,
    ),
}
FAULTS |= HAND_FAULTS
