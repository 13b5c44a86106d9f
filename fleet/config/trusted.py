"""Files that decide what runs on this workstation, trusted if no other user can change them.

An inventory can start programs, read files and send secrets to a server. `require` accepts a file
if everything on its path, links included, belongs to this user or root, and no one else may write
to it. `fleet config trust DIR` and FLEET_TRUST accept a folder of another user. git checks a
repository in a similar way (safe.directory), by owner alone.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet.model.errors import InputError, reason
from fleet.model.home import fleet_home, kept, open_private, private_folder

VARIABLE = "FLEET_TRUST"
LIST = "trusted"  # a file in FLEET_HOME with one absolute path a line
_ROOT = Path("/")
_MOST_LINKS = 40  # as in the kernel (path_resolution(7))
_MOUNTS = Path("/proc/self/mountinfo")
_GROUPS = Path("/etc/group")
_OVERFLOW = Path("/proc/sys/kernel/overflowuid")
_ACL = "system.posix_acl_access"
_ACL_USER, _ACL_GROUP_OBJ, _ACL_GROUP, _ACL_WRITE = 0x02, 0x04, 0x08, 2  # linux/posix_acl.h
_WINDOWS = ("drvfs", "9p", "virtiofs")  # the file systems with which WSL mounts a Windows drive


@dataclass(frozen=True)
class Distrust:
    """A part of a path that another user can change, and the folder that would have to be trusted.

    `unknown`: the part is on a drive that stores no owners.
    """

    place: Path
    reason: str
    folder: Path
    unknown: bool = False

    def __str__(self) -> str:
        return f"{self.place} {self.reason}"


def require(path: Path, error: type[InputError] = InputError) -> str:
    """Raise `error` if another user can change the file, or redirect the path to another file.

    Return a warning if fleet cannot check this, else "".
    """
    fault = fault_of(path)
    if fault is None:
        return ""
    if fault.unknown:
        return (
            f"{path} is on a Windows drive, which keeps no owners: fleet cannot check who else "
            "can change the file"
        )
    raise error(
        f"the file {path} is not trusted: {fault}; it decides which commands run and which files "
        "and passwords are sent",
        hint=f"if you trust everybody who can change it: fleet config trust "
        f"{shlex.quote(str(fault.folder))} (in CI: {VARIABLE}={shlex.quote(str(fault.folder))})",
    )


def fault_of(path: Path) -> Distrust | None:
    """Return the first part of the path that others can change and that is not trusted, or None."""
    walk = _Walk(path)
    faults = list(_faults(walk))
    if not faults:
        return None
    trusted = (*_of_environment(), *folders())
    left = [
        fault
        for fault in faults
        if not any(
            fault.place.is_relative_to(folder)
            or (folder in walk.steps and folder.is_relative_to(fault.place))
            for folder in trusted
        )
    ]
    return min(left, key=lambda fault: fault.unknown, default=None)


def folders() -> list[Path]:
    """Return the folders of `fleet config trust`; none if others can change the list."""
    path = fleet_home() / LIST
    try:
        if next(_faults(_Walk(path)), None):
            return []
        return [Path(line) for line in os.fsdecode(path.read_bytes()).split("\n") if line]
    except OSError:
        return []


def trust(folder: Path) -> Path:
    """Add the real path of a folder to the list, and return it. Raises InputError,
    WorkstationError.
    """
    real, path = _real(folder), fleet_home() / LIST
    with kept(path):
        private_folder(path.parent)
        if real not in folders():
            with open_private(path, "ab") as stream:
                stream.write(os.fsencode(real) + b"\n")
    fault = next(_faults(_Walk(path)), None)
    if fault is not None:
        raise InputError(
            f"fleet ignores the list of trusted folders {path}: {fault}",
            hint="set FLEET_HOME to a folder that only you can change",
        )
    return real


def distrust(folder: Path) -> Path:
    """Remove a folder from the list, and return its real path. Raises InputError if it is not
    listed.
    """
    real, path, known = folder.resolve(), fleet_home() / LIST, folders()
    if real not in known:
        raise InputError(
            f"the folder {real} is not in the list of trusted folders",
            hint="fleet config trust (shows the list)",
        )
    part = path.with_name(f"{LIST}.{os.getpid()}.part")
    with kept(path):
        with open_private(part) as stream:
            stream.writelines(os.fsencode(each) + b"\n" for each in known if each != real)
        part.replace(path)
    return real


def _real(folder: Path) -> Path:
    try:
        real = folder.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"cannot trust the folder {folder}: {reason(error)}",
            hint="give a folder that exists",
        ) from error
    if not real.is_dir() or "\n" in str(real):
        raise InputError(
            f"cannot trust {real}: it is not a folder, or its name has a line break",
            hint=f"give the folder of the file: fleet config trust {shlex.quote(str(real.parent))}",
        )
    return real


def _of_environment() -> Iterator[Path]:
    for text in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        if not Path(text).is_absolute():
            raise InputError(
                f"{VARIABLE} has '{text}', which is not an absolute path",
                hint=f"write whole paths, with {os.pathsep} between two: export {VARIABLE}=/DIR",
            )
        yield Path(text).resolve()


class _Walk:
    """The steps of the kernel to a file: each folder and link on the way, by lstat.

    `own` has the folder of the file, and the folder of the link if the path is a link: whoever can
    write there can replace the file. For a missing file, the steps lead to the place where it would
    be.
    """

    def __init__(self, path: Path) -> None:
        self.steps = {_ROOT: _ROOT.lstat()}
        self.own: set[Path] = set()
        self._links = 0
        self._here = _ROOT
        todo = [*reversed(path.absolute().parts[1:])]
        try:
            while todo:
                self._step(todo)
        except OSError:
            self.own.add(self._here)

    def _step(self, todo: list[str]) -> None:
        name = todo.pop()
        if name == "..":
            if self._here != _ROOT:
                self.steps.pop(self._here, None)
            self._here = self._here.parent
            return
        if not todo:
            self.own.add(self._here)
        item = self._here / name
        about = self.steps[item] = item.lstat()
        if not stat.S_ISLNK(about.st_mode):
            self._here = item
            return
        self._links += 1
        if self._links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = item.readlink()
        if target.is_absolute():
            self._here = _ROOT
        todo += reversed(target.parts[1:] if target.is_absolute() else target.parts)


def _faults(walk: _Walk) -> Iterator[Distrust]:
    owners = _owners()
    for place, about in walk.steps.items():
        folder = place if stat.S_ISDIR(about.st_mode) else place.parent
        if place not in walk.own and stat.S_ISDIR(about.st_mode):
            # A parent folder cannot be trusted as a whole, so name the folder of the file.
            below = [own for own in walk.own if own.is_relative_to(place)]
            folder = min(below, key=lambda own: len(own.parts), default=place)
            folder = _project(folder, place)
        why = _why(place, about, owners, above=place not in walk.own)
        if why:
            yield Distrust(place, why, folder, unknown=_without_owners(about))


def _project(folder: Path, top: Path) -> Path:
    """Return the root of the project or checkout that contains the folder, `top` at most."""
    for above in (folder, *folder.parents):
        if any((above / mark).exists() for mark in (".git", "fleet.yaml")):
            return above
        if above == top:
            break
    return folder


def _why(place: Path, about: os.stat_result, owners: set[int], *, above: bool) -> str:
    """Return how another user can change the place, or ""; a place `above` may be sticky."""
    mode = about.st_mode
    if about.st_uid not in owners and not (above and _unmapped(about)):
        return f"belongs to {_user(about.st_uid)}"
    if stat.S_ISLNK(mode):
        return ""
    if above and stat.S_ISDIR(mode) and mode & stat.S_ISVTX:
        return ""  # others may add names to /tmp, but cannot remove the names of this user
    if mode & stat.S_IWOTH:
        return "can be written by every user"
    if mode & stat.S_IWGRP:
        return _writers(place, about, owners)
    return ""


def _owners() -> set[int]:
    """Return the users that may own a file: this user, root, and under sudo the calling user."""
    me = os.geteuid()
    caller = os.environ.get("SUDO_UID", "")
    return {me, 0} | ({int(caller)} if me == 0 and caller.isdecimal() else set())


def _unmapped(about: os.stat_result) -> bool:
    """Return whether this is a folder of a user without a number in this user namespace.

    The owner of `/` has no number there either; without this exception nobody could work in such a
    namespace. It applies only to folders above the folder of the file.
    """
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not about.st_mode & stat.S_ISVTX:
        return False
    try:
        nobody = int(_OVERFLOW.read_text())
    except (OSError, ValueError):
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == nobody == _ROOT.lstat().st_uid


def _writers(place: Path, about: os.stat_result, owners: set[int]) -> str:
    """Return who else may write to a group-writable file or folder, or "".

    With an access list, the group bits are the upper limit of all its rights.
    """
    rules = _acl(place)
    for tag, number in rules:
        if tag == _ACL_USER and number not in owners:
            return f"can be written by {_user(number)} (access list)"
    groups = [number for tag, number in rules if tag == _ACL_GROUP]
    if not rules or any(tag == _ACL_GROUP_OBJ for tag, _ in rules):
        groups.append(about.st_gid)
    return next(filter(None, (_members(group, about, owners) for group in groups)), "")


def _acl(place: Path) -> Sequence[tuple[int, int]]:
    """Return (tag, number) of each rule of the access list that allows writing (acl(5))."""
    try:
        data = os.getxattr(place, _ACL, follow_symlinks=False)
    except (AttributeError, OSError):  # not Linux, or no list
        return []
    rules = struct.iter_unpack("<HHI", data[4:])
    return [(tag, number) for tag, allowed, number in rules if allowed & _ACL_WRITE]


def _members(gid: int, about: os.stat_result, owners: set[int]) -> str:
    """Return a phrase about a member of the group who is not an owner, or "".

    A private group of the owner (umask 002) has no other member. The members of a group that is
    missing in /etc/group cannot be listed.
    """
    import grp  # noqa: PLC0415 - needed for few files
    import pwd  # noqa: PLC0415

    try:
        group = grp.getgrgid(gid)
        name, listed = group.gr_name, set(group.gr_mem)
    except KeyError:
        name, listed = str(gid), set()
    accounts = pwd.getpwall()
    own = {each.pw_name for each in accounts if each.pw_uid in owners}
    others = listed - own
    others |= {each.pw_name for each in accounts if each.pw_gid == gid and each.pw_name not in own}
    if others:
        return f"can be written by the group {name}, which has the member {min(others)}"
    private = gid in (0, about.st_uid) or name in own
    if private or name in _local_groups():
        return ""
    return f"can be written by the group {name}, whose members are not known here"


def _local_groups() -> set[str]:
    try:
        return {
            line.partition(":")[0] for line in _GROUPS.read_text("utf-8", "replace").split("\n")
        }
    except OSError:
        return set()


def _user(uid: int) -> str:
    import pwd  # noqa: PLC0415 - needed only for a refusal

    try:
        return f"user {pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _without_owners(about: os.stat_result) -> bool:
    """Return whether a file or folder is on a Windows drive of WSL, where owner and mode mean
    nothing.
    """
    device = f"{os.major(about.st_dev)}:{os.minor(about.st_dev)}"
    try:
        lines = _MOUNTS.read_text("utf-8", "replace").splitlines()
    except OSError:
        return False
    for line in lines:
        before, _, after = line.partition(" - ")  # proc_pid_mountinfo(5)
        if before.split()[2:3] == [device]:
            kind, _, rest = after.partition(" ")
            return kind in _WINDOWS and "drvfs" in after and (kind == "drvfs" or "drvfs" in rest)
    return False
