"""The userland that all namespace boards share: a Debian tree, built once, kept in a cache."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from fleet.model.errors import LabError
from fleet.model.files import human_bytes

SUITE = "bookworm"
PACKAGES = (
    "openssh-server,sudo,python3,procps,iproute2,udev,kmod,adduser,libatomic1,acl,"
    "systemd-standalone-sysusers"
)
NEEDS = {"mmdebstrap": "mmdebstrap", "sshd": "openssh-server", "unshare": "util-linux"}
BUILD_SECONDS = 900  # 18 s on a quick line; a slow mirror takes minutes
BUILD_MB, TREE_MB = 57, 272  # to download, and on disk
TREE_PACKAGES = 144
USERS = """set -e
groupadd --system fastrpc
useradd -m -s /bin/bash ubuntu
usermod -aG sudo,fastrpc ubuntu
rm -f /etc/ssh/ssh_host_*
"""


def cache_dir() -> Path:
    """`$FLEET_CACHE`, else `$XDG_CACHE_HOME/fleet`, else `~/.cache/fleet`."""
    own = os.environ.get("FLEET_CACHE")
    if own:
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "fleet"


def find(program: str) -> str | None:
    """A program, also in the folders of the administrator."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/local/sbin"
    return shutil.which(program, path=path)


def require(programs: dict[str, str], *, install: bool) -> None:
    """Make sure that programs are there; as root and with leave, apt installs what is not.

    Raises LabError with the packages and the command.
    """
    lacking = sorted({package for name, package in programs.items() if find(name) is None})
    if not lacking:
        return
    command = ["apt-get", "install", "-y", "--no-install-recommends", *lacking]
    if install and os.geteuid() == 0 and find("apt-get"):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            quiet = {"capture_output": True, "timeout": BUILD_SECONDS}
            env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            subprocess.run(["apt-get", "update"], check=False, env=env, **quiet)  # type: ignore[call-overload]
            subprocess.run(command, check=False, env=env, **quiet)  # type: ignore[call-overload]
        lacking = sorted({package for name, package in programs.items() if find(name) is None})
    if lacking:
        raise LabError(f"not installed: {', '.join(lacking)}", hint="sudo " + " ".join(command))


def rootfs(*, install: bool = False) -> Path:
    """The cached tree; built under a temporary name and renamed when it is whole.

    Raises LabError when tools are missing or the build fails.
    """
    return built_once(rootfs_path(), NEEDS, _build, install=install)


def rootfs_path() -> Path:
    """Where the tree is, or will be when it is built."""
    recipe = f"{SUITE} {PACKAGES} {USERS}"
    name = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    return cache_dir() / "lab" / f"rootfs-{SUITE}-{name}"


def progress() -> str:
    """What the build of the tree is at; "" while none is on. Numbers only grow."""
    part = _part(rootfs_path())
    unpacked = len(list(part.glob("var/lib/dpkg/info/*.list")))
    if unpacked >= TREE_PACKAGES:
        return f"sets up {unpacked} packages"
    if unpacked:
        return f"unpacked {unpacked} of {TREE_PACKAGES} packages"
    files = part.glob("var/cache/apt/archives/**/*.deb*")
    fetched = sum(_size(file) for file in files)
    if fetched:
        return f"downloads packages, {human_bytes(fetched)}"
    return "downloads the package lists" if part.is_dir() else ""


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # renamed meanwhile
        return 0


def _part(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def built_once(
    target: Path, needs: dict[str, str], build: Callable[[Path], None], *, install: bool
) -> Path:
    """`target`, built when it is not there, by one process at a time. Raises LabError."""
    if target.is_dir():
        return target
    require(needs, install=install)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            build(target)
    return target


def _build(target: Path) -> None:
    hint = "check that apt-get update works; or fleet lab up --kind user (needs no Debian packages)"
    with building(target, "the board's userland", hint) as part:
        bootstrap(part, PACKAGES)
        run_inside(part, USERS)


def bootstrap(target: Path, packages: str) -> None:
    """A Debian tree with these packages (commas between). Raises subprocess.SubprocessError."""
    argv = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", SUITE]
    sources = Path("/etc/apt/sources.list.d/debian.sources")
    own = sources.is_file() and SUITE in sources.read_text("utf-8", "replace")
    argv += [str(target), *([str(sources)] if own else [])]
    subprocess.run(argv, check=True, capture_output=True, timeout=BUILD_SECONDS)


@contextlib.contextmanager
def building(target: Path, what: str, hint: str = "") -> Iterator[Path]:
    """A folder to build `target` in; it gets its name when it is whole.

    Raises LabError with the last words of the program that failed.
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
