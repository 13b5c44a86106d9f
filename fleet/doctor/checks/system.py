"""Checks of the operating system: C library, container, room, execution."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from fleet.doctor.checks.making import Maker
from fleet.doctor.seen import Seen, Subject, subjects
from fleet.model.diagnosis import Check
from fleet.model.files import human_bytes
from fleet.model.runtime import version_key
from fleet.ops.system.access import CDSP
from fleet.runtimes.targets import target_facts

FULL_BYTES = 1 << 20
LOW_BYTES = 64 << 20
_OE = "aarch64-oe-linux-gcc11.2"  # compared with an aarch64 folder of unknown origin
_GLIBC = "getconf GNU_LIBC_VERSION"
_AUDIT = "logcat -b all -d | grep 'avc: .*execute'"
_DENIAL = re.compile(r"avc:\s+denied\s+\{[^}]*\bexecute(_no_trans)?\b")
_LIBC = Maker("libc", "os")
_CONTAINER = Maker("container", "os")
_DISK = Maker("disk", "os")
_EXEC = Maker("exec", "os")
_RENAME = Maker("rename", "os")


def libc(sample: Seen) -> Iterator[Check]:
    """The C library is as new as the runtime needs."""
    facts = sample.facts
    have = f"{facts.libc or 'unknown'} {facts.libc_version or ''}".strip()
    wanted = [(subject, least) for subject in subjects(sample) if (least := _least(subject))]
    for subject, least in wanted if facts.os_family != "android" else ():
        text = f"{subject.label} needs glibc {least}, but the device has {have}"
        if facts.libc not in {None, "glibc"}:
            yield _LIBC.bad(text, {"os.libc": "other"}, _GLIBC, have)
            return
        try:
            old = version_key(facts.libc_version or "") < version_key(least)
        except ValueError:
            yield _LIBC.unknown("the C library is unknown", {"os.libc": "unknown"}, _GLIBC)
            return
        if old:
            yield _LIBC.bad(text, {"os.libc": "too-old"}, _GLIBC, have)
            return
    yield _LIBC.ok(have, {"os.libc": "ok"}, _GLIBC, have)


def _least(subject: Subject) -> str | None:
    target = subject.target or (target_facts(_OE) if subject.machine == "aarch64" else None)
    return target.min_glibc if target else None


def container(sample: Seen) -> Iterator[Check]:
    """Whether this login is inside a container."""
    marks = sample.lines.get("container", [])
    if not marks:
        yield _CONTAINER.ok("no container", {"os.container": "no"})
        return
    facts, command, output = {"os.container": "yes"}, "ls /.dockerenv /run/.containerenv", marks[0]
    nodes = any(node.exists for node in sample.facts.nodes if node.path in CDSP)
    if nodes and sample.facts.libcdsprpc:
        yield _CONTAINER.ok(
            "the device is a container, and has the NPU device nodes and the FastRPC library",
            {},
            command,
        )
    else:
        text = (
            "the device is a container that lacks the NPU device nodes or the FastRPC library of "
            "the host"
        )
        yield _CONTAINER.bad(text, facts, command, output)


def disk(sample: Seen) -> Iterator[Check]:
    """There is room where releases go, and it can be written."""
    room = sample.facts.disk
    free = f"{human_bytes(room.available_bytes)}, {room.inodes} inodes on {room.mount}"
    command = f"df -Pk {room.path}"
    if room.inodes == 0 or (room.available_bytes is not None and room.available_bytes < FULL_BYTES):
        # A full disk refuses the file of the write test too, which is no second finding.
        yield _DISK.bad(f"the disk is full: {free} free", {"disk.free": "full"}, command, free)
    elif room.writable is False:
        text = f"this user cannot write to the folder {room.path}"
        touch = f"touch {room.path}/x"
        yield _DISK.bad(text, {"disk.writable": "no"}, touch, "creating a file failed")
    elif room.available_bytes is None:
        yield _DISK.unknown(
            "fleet could not read how much disk space is free (df printed no number); "
            "a deploy does not check the disk space then",
            {},
            command,
        )
    elif room.available_bytes < LOW_BYTES:
        facts = {"disk.writable": "yes", "disk.free": "low"}
        yield _DISK.warn(f"{free} free", facts, command, free)
    else:
        facts = {"disk.writable": "yes", "disk.free": "ok"}
        yield _DISK.ok(f"{free} free", facts, command, free)


def execute(sample: Seen) -> Iterator[Check]:
    """Programs may be started from where releases go."""
    mount, kind, options = "", "", ""
    for row in sample.pairs("mount"):
        mount, rest = row[0], row[-1]
        kind, _, options = rest.partition(" ")
    if not options:
        yield _EXEC.unknown("fleet could not determine the file system of the base folder")
        return
    phone, command = sample.facts.android, "grep noexec /proc/mounts"
    if denial := _execution_denial(sample):
        text = f"SELinux refuses to start programs in {sample.facts.base_dir}"
        yield _EXEC.bad(text, {"android.storage": "selinux"}, _AUDIT, denial)
        return
    bad = "noexec" in options.split(",") or (phone and kind in {"sdcardfs", "fuse"})
    facts = {"disk.exec": "no" if bad else "yes"}
    if phone:
        facts["android.storage"] = "noexec" if bad else "ok"
    if bad:
        yield _EXEC.bad(f"{mount} ({kind}) is mounted noexec", facts, command, options)
    else:
        yield _EXEC.ok(f"{mount} ({kind})", facts, command, options)


def _execution_denial(sample: Seen) -> str:
    """Return the audit line that shows that SELinux refused to start a program in fleet's folder.

    Returns "" if there is none. The kernel asks SELinux only if the mount allows execution
    (may_open of fs/namei.c), so this line tells more than the options of the mount.
    """
    phone = sample.facts.android
    if phone is None or phone.selinux == "Permissive":
        return ""
    for line in reversed(sample.block("journal")):
        match = _DENIAL.search(line)
        path = re.search(r'\bpath="([^"]*)"', line)
        if match and "permissive=1" not in line and path and _is_below(path[1], sample):
            return line.strip()
    return ""


def _is_below(path: str, sample: Seen) -> bool:
    return PurePosixPath(path).is_relative_to(sample.facts.base_dir or "/data/local/tmp")


def rename(sample: Seen) -> Iterator[Check]:
    """A link can be replaced in one rename, as each switch to a release and each lease does."""
    rows = sample.pairs("rename")
    command = "ln -s a x; ln -s b y; mv -f -T y x; readlink x"
    if not rows:
        yield _RENAME.unknown(
            "not tested: this user cannot create a folder under base_dir of the device (see "
            "the check of the folder)"
        )
    elif rows[0][0] == "yes":
        yield _RENAME.ok("releases can be switched by a rename", {"disk.rename": "yes"}, command)
    else:
        text = (
            "fleet cannot switch releases on this device: no tool can replace a symbolic link "
            "by rename (mv -T)"
        )
        yield _RENAME.bad(text, {"disk.rename": "no"}, command, "\n".join(rows[0][1:]))
