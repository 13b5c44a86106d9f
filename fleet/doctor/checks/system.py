"""Checks of the operating system: C library, container, room, execution."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.doctor.seen import Seen
from fleet.doctor.subject import subjects
from fleet.model.diagnosis import BAD, OK, UNKNOWN, WARN, Check
from fleet.model.files import human_bytes
from fleet.model.runtime import version_key
from fleet.runtimes.targets import target_facts

FULL_BYTES = 1 << 20
LOW_BYTES = 64 << 20
_OE = "aarch64-oe-linux-gcc11.2"  # what an aarch64 folder of unknown origin is held against


def libc(seen: Seen) -> Iterator[Check]:
    """The C library is as new as the runtime needs."""
    facts = seen.facts
    have = f"{facts.libc or 'unknown'} {facts.libc_version or ''}".strip()
    for one in subjects(seen):
        target = one.target or (target_facts(_OE) if one.machine == "aarch64" else None)
        least = target.min_glibc if target else None
        if least is None or facts.os_family == "android":
            continue
        command = "getconf GNU_LIBC_VERSION"
        if facts.libc not in {None, "glibc"}:
            yield Check(
                "libc",
                "os",
                BAD,
                f"{one.label} needs glibc {least}, here is {have}",
                {"os.libc": "other"},
                command,
                have,
            )
            return
        try:
            old = version_key(facts.libc_version or "") < version_key(least)
        except ValueError:
            yield Check(
                "libc",
                "os",
                UNKNOWN,
                "the C library is unknown",
                {"os.libc": "unknown"},
                command,
                have,
            )
            return
        if old:
            yield Check(
                "libc",
                "os",
                BAD,
                f"{one.label} needs glibc {least}, here is {have}",
                {"os.libc": "too-old"},
                command,
                have,
            )
            return
    yield Check("libc", "os", OK, have, {"os.libc": "ok"}, "getconf GNU_LIBC_VERSION", have)


def container(seen: Seen) -> Iterator[Check]:
    """Whether this login is inside a container."""
    marks = seen.lines.get("container", [])
    if marks:
        yield Check(
            "container",
            "os",
            WARN,
            "this is inside a container: nodes and FastRPC libraries of the host must be passed in",
            {"os.container": "yes"},
            "ls /.dockerenv /run/.containerenv",
            ", ".join(marks),
        )
    else:
        yield Check("container", "os", OK, "no container", {"os.container": "no"})


def disk(seen: Seen) -> Iterator[Check]:
    """There is room where releases go, and it can be written."""
    room = seen.facts.disk
    free = f"{human_bytes(room.available_bytes)}, {room.inodes} inodes on {room.mount}"
    words = {"disk.writable": "no" if room.writable is False else "yes"}
    command = f"df -Pk {room.path}"
    if room.inodes == 0 or (room.available_bytes is not None and room.available_bytes < FULL_BYTES):
        # A full disk refuses the file of the write test too; that is no second finding.
        yield Check(
            "disk", "os", BAD, f"no room: {free} free", {"disk.free": "full"}, command, free
        )
    elif room.writable is False:
        yield Check(
            "disk",
            "os",
            BAD,
            f"{room.path} cannot be written",
            words,
            f"touch {room.path}/x",
            "no file could be made",
        )
    elif room.available_bytes is None:
        yield Check("disk", "os", UNKNOWN, "free space is unknown", {}, command)
    else:
        low = room.available_bytes < LOW_BYTES
        yield Check(
            "disk",
            "os",
            WARN if low else OK,
            f"{free} free",
            words | {"disk.free": "low" if low else "ok"},
            command,
            free,
        )


def execute(seen: Seen) -> Iterator[Check]:
    """Programs may be started from where releases go."""
    mount, kind, options = "", "", ""
    for row in seen.pairs("mount"):
        mount, rest = row[0], row[-1]
        kind, _, options = rest.partition(" ")
    if not options:
        yield Check("exec", "os", UNKNOWN, "the mount of the base folder is unknown")
        return
    phone = seen.facts.android
    bad = "noexec" in options.split(",") or (phone and kind in {"sdcardfs", "fuse"})
    words = {"disk.exec": "no" if bad else "yes"}
    if phone:
        words["android.storage"] = "noexec" if bad else "ok"
    text = f"{mount} is {kind} with noexec" if bad else f"{mount} ({kind})"
    yield Check("exec", "os", BAD if bad else OK, text, words, "grep noexec /proc/mounts", options)
