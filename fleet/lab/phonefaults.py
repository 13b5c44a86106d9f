"""Faults of phones: each changes the state of the phone and lets adb and the kernel complain."""

from __future__ import annotations

from fleet.lab.faultbase import Fault
from fleet.lab.phoneuser import MANNERS

_FLEET = "/data/local/tmp/fleet"
_OWN = "uid=2000,gid=2000,mode=771"
_MOUNT = f"mkdir -p {_FLEET} && mount -t tmpfs -o"
_GONE = f"umount {_FLEET} && rmdir {_FLEET} 2>/dev/null; true"
# The form of an audit line of a real phone; there is no SELinux here that writes it.
_AVC = (
    'type=1400 audit(0.0:1): avc: denied { execute_no_trans } for comm="sh" '
    'path="/data/local/tmp/fleet" scontext=u:r:shell:s0 '
    "tcontext=u:object_r:shell_data_file:s0 tclass=file permissive=0"
)

PHONE_FAULTS: dict[str, Fault] = {
    "full-data": Fault(
        "the deploy folder is a disk of 2 MB, and full",
        f"{_MOUNT} size=2m,{_OWN} tmpfs {_FLEET} && "
        f"dd if=/dev/zero of={_FLEET}/filler bs=4096 2>/dev/null; true",
        _GONE,
    ),
    "small-data": Fault(
        "the deploy folder is a disk of 40 MB",
        f"{_MOUNT} size=40m,{_OWN} tmpfs {_FLEET}",
        _GONE,
    ),
    "read-only": Fault(
        "the deploy folder is mounted read-only", f"{_MOUNT} ro tmpfs {_FLEET}", _GONE
    ),
    "noexec-storage": Fault(
        "the deploy folder is mounted noexec, as /sdcard is",
        f"{_MOUNT} noexec,{_OWN} tmpfs {_FLEET}",
        _GONE,
    ),
    "selinux-refusal": Fault(
        "nothing can be started there: the kernel's own EACCES (noexec stands for SELinux, which "
        "is not here), and a recorded audit line in logcat",
        f"{_MOUNT} noexec,{_OWN} tmpfs {_FLEET} && echo '{_AVC}' >> /data/lab-logcat",
        f"rm -f /data/lab-logcat; {_GONE}",
    ),
    "node-root-only": Fault(
        "the FastRPC nodes belong to root alone",
        "chmod 600 /dev/fastrpc-* /dev/adsprpc-smd",
        "chmod 664 /dev/fastrpc-* /dev/adsprpc-smd",
    ),
    "no-tar": Fault(
        "there is no tar",
        "mv /system/bin/tar /system/bin/tar.gone",
        "mv /system/bin/tar.gone /system/bin/tar",
    ),
    "cut": Fault("adbd is killed once: every stream breaks; it comes back", "pkill -9 adbd", ":"),
    "blackhole": Fault(
        "adbd answers nothing any more; adb still says `device`",
        "pkill -STOP adbd",
        "pkill -CONT adbd",
    ),
}
# Signals of the same faults for an emulated phone, whose whole daemon is one process.
SIGNALS = {"cut": "KILL", "blackhole": "STOP"}
EVERY = tuple(dict.fromkeys((*PHONE_FAULTS, "offline", *MANNERS)))
