"""The userland that all namespace boards share: a Debian tree, built once and cached."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from fleet.lab.archive import BASE, BUILD_SECONDS, Archive, set_up, unpack
from fleet.lab.host import command, find
from fleet.model.errors import LabError
from fleet.model.files import human_bytes

SUITE = "bookworm"
PACKAGES = (
    "openssh-server,sudo,python3,procps,iproute2,udev,kmod,adduser,libatomic1,acl,"
    "systemd-standalone-sysusers"
)
APT = {"apt-get": "apt", "dpkg-deb": "dpkg", "tar": "tar", "setpriv": "util-linux"}
NEEDS = {**APT, "unshare": "util-linux", "mount": "mount"}
BUILD_MB, TREE_MB = 57, 272  # to download, and on disk
TREE_PACKAGES = 144
USERS = """set -e
groupadd --system fastrpc
useradd -m -s /bin/bash ubuntu
usermod -aG sudo,fastrpc ubuntu
rm -f /etc/ssh/ssh_host_*
"""


def cache_dir() -> Path:
    """Return `$FLEET_CACHE`, else `$XDG_CACHE_HOME/fleet`, else `~/.cache/fleet`."""
    own = os.environ.get("FLEET_CACHE")
    if own:
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "fleet"


def require(programs: dict[str, str]) -> None:
    """Raise LabError with the packages and the command if a program is not installed here."""
    lacking = sorted({package for name, package in programs.items() if find(name) is None})
    if lacking:
        raise LabError(f"not installed: {', '.join(lacking)}", hint=command(lacking))


def rootfs() -> Path:
    """Return the cached tree. Build it first if it is missing.

    Raises LabError if tools are missing or the build fails.
    """
    return built_once(rootfs_path(), NEEDS, _build)


def rootfs_path() -> Path:
    """Return the path of the tree, which may not be built yet."""
    recipe = f"{SUITE} {PACKAGES} {USERS}"
    name = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    return cache_dir() / "lab" / f"rootfs-{SUITE}-{name}"


def progress() -> str:
    """Return the current step of the build of the tree, "" if no build runs. Numbers only grow."""
    part = _part(rootfs_path())
    fetching = downloads(part)
    unpacked = len(list(part.glob("var/lib/dpkg/info/*.list")))
    if unpacked >= TREE_PACKAGES:
        return f"sets up {unpacked} packages"
    if unpacked:
        return f"sets up {unpacked} of {TREE_PACKAGES} packages"
    if part.is_dir():
        return "unpacks the packages"
    fetched = sum(_size(file) for file in fetching.glob("archives/**/*.deb*"))
    if fetched:
        return f"downloads packages, {human_bytes(fetched)}"
    return "downloads the package lists" if fetching.is_dir() else ""


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # renamed in the meantime
        return 0


def _part(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def built_once(target: Path, needs: dict[str, str], build: Callable[[Path], None]) -> Path:
    """Return `target`. Build it if it is missing, in one process at a time. Raises LabError."""
    if target.is_dir():
        return target
    require(needs)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            build(target)
    return target


def _build(target: Path) -> None:
    hint = "check that apt-get update works; or fleet lab up --kind user (downloads less)"
    with building(target, "the board's userland", hint) as part:
        bootstrap(part, PACKAGES)
        run_inside(part, USERS)


def bootstrap(target: Path, packages: str) -> None:
    """Make a Debian tree with these packages (commas between them). dpkg sets them up in the tree.

    Raises subprocess.SubprocessError and OSError.
    """
    archive = Archive(downloads(target), [f"{SUITE} main"])
    debs = archive.download([*BASE, *packages.split(",")])
    unpack(debs, target)
    set_up(debs, target)
    archive.remove()


def downloads(part: Path) -> Path:
    """Return the folder for the packages of a tree. It survives an interrupted build."""
    return part.with_name(f"{part.name.removesuffix('.part')}.debs")


@contextlib.contextmanager
def building(target: Path, what: str, hint: str = "") -> Iterator[Path]:
    """Yield a folder to build `target` in, and rename it to `target` at the end.

    Raises LabError with the last lines of the program that failed.
    """
    part = _part(target)
    shutil.rmtree(part, ignore_errors=True)
    try:
        yield part
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(part, ignore_errors=True)
        words = (getattr(error, "stderr", None) or b"").decode("utf-8", "replace").splitlines()
        why = " | ".join(words[-3:]) or error
        raise LabError(f"fleet could not build {what}: {why}", hint=hint) from error
    part.replace(target)


def run_inside(root: Path, script: str) -> None:
    """Run shell text in a tree. Raises subprocess.SubprocessError."""
    argv = ["chroot", str(root), "/bin/sh", "-c", script]
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    subprocess.run(argv, check=True, capture_output=True, timeout=BUILD_SECONDS, env=env)
