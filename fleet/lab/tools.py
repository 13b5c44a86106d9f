"""The programs that boards of an ordinary user need: sshd and libatomic of this computer, or
Debian's.

Debian's sshd is unpacked into the cache. It runs with its own loader and libraries, so that it
needs neither an installation nor a matching glibc.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

from fleet.lab.archive import Archive, run, unpack
from fleet.lab.host import ATOMIC, find, has_board_programs, has_library
from fleet.lab.rootfs import APT, SUITE, building, built_once, cache_dir, downloads

VERSION_SECONDS = 10.0
SSHD_MB, SSHD_TREE_MB = 17, 29  # to download with the list of packages, and on disk
_PACKAGES = (
    *("openssh-server", "libatomic1", "libaudit1", "libc6", "libcap-ng0", "libcom-err2"),
    *("libcrypt1", "libgcrypt20", "libgpg-error0", "libgssapi-krb5-2", "libk5crypto3"),
    *("libkeyutils1", "libkrb5-3", "libkrb5support0", "liblz4-1", "liblzma5", "libcap2"),
    *("libnsl2", "libnss-wrapper", "libpam0g", "libpcre2-8-0", "libselinux1", "libssl3"),
    *("libsystemd0", "libtirpc3", "libwrap0", "libzstd1", "zlib1g"),
)
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
# -r: sshd cannot re-execute itself, because its file needs this loader.
_WRAPPER = f"""#!/bin/sh
# Written by fleet lab: Debian's sshd with its own loader and libraries.
t=${{0%/*}}
l=$t/{_LIBRARIES}
exec "$l/ld-linux-x86-64.so.2" --library-path "$l" \\
  ${{FLEET_NSS_WRAPPER:+--preload "$l/libnss_wrapper.so"}} "$t/usr/sbin/sshd" -r "$@"
"""


def sshd() -> str:
    """Return the path of sshd. Prepare the cached one if this computer has none.

    Raises LabError if sshd cannot be prepared.
    """
    return find("sshd") or str(_folder() / "sshd")


def without_penalties(program: str) -> dict[str, str]:
    """Return the sshd setting with which failed logins never block this computer.

    OpenSSH 9.8 and newer refuse an address for a while after failed logins (sshd_config(5),
    PerSourcePenalties), and all logins to a lab come from one address. Older versions do not know
    the setting.
    """
    done = subprocess.run(
        [program, "-V"], capture_output=True, text=True, check=False, timeout=VERSION_SECONDS
    )
    version = re.search(r"OpenSSH_(\d+)\.(\d+)", done.stdout + done.stderr)
    known = version is not None and (int(version[1]), int(version[2])) >= (9, 8)
    return {"PerSourcePenalties": "no"} if known else {}


def board_programs() -> None:
    """Prepare the programs that user boards need and this computer lacks. Raises LabError."""
    if not has_board_programs():
        _folder()


def has_tools() -> bool:
    """Return True if boards of an ordinary user need no download."""
    return has_board_programs() or _place().is_dir()


def atomic_library() -> Path | None:
    """Return libatomic for boards that share this computer's userland, None if the computer has it.

    Raises LabError.
    """
    return None if has_library(ATOMIC) else _folder() / _LIBRARIES / ATOMIC


def _place() -> Path:
    recipe = hashlib.sha256(f"{SUITE} {_PACKAGES} {_WRAPPER}".encode()).hexdigest()[:12]
    return cache_dir() / "lab" / f"sshd-{SUITE}-{recipe}"


def _folder() -> Path:
    return built_once(_place(), APT, _build)


def _build(target: Path) -> None:
    with building(target, "the sshd of the lab", "check that apt-get update works") as part:
        archive = Archive(downloads(part), [f"{SUITE} main"])
        unpack(archive.download(_PACKAGES, alone=True), part)
        (part / "sshd").write_text(_WRAPPER, "utf-8")
        (part / "sshd").chmod(0o755)
        libraries = part / _LIBRARIES
        loader = libraries / "ld-linux-x86-64.so.2"
        run([loader, "--library-path", libraries, "--list", part / "usr/sbin/sshd"])
        archive.remove()
