"""The list of everything that a computer needs for fleet's environment and for its demo.

Standard library only: `make` runs this file with the Python that it finds, before it installs
anything.
"""

from __future__ import annotations

import glob
import os
import platform
import shlex
import shutil
import sys
from importlib.util import find_spec

OLDEST = (3, 11)
KEYS = (
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
)
ATOMIC = "libatomic.so.1"  # libQnnSystem of QAIRT needs it
_LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/lib/x86_64-linux-gnu")


def find(program: str) -> str | None:
    """Return the path of a program. The folders of the administrator are searched too."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/local/sbin"
    return shutil.which(program, path=path)


def has_library(name: str) -> bool:
    """Return True if one of the usual folders of x86_64 Linux has the library."""
    return any(os.path.exists(f"{folder}/{name}") for folder in _LIBRARIES)  # noqa: PTH110


def has_board_programs() -> bool:
    """Return True if this computer has everything that boards of an ordinary user need."""
    return find("sshd") is not None and has_library(ATOMIC)


def environment_needs() -> list[tuple[str, str]]:
    """Return what a virtual environment needs and this computer lacks, each with its package."""
    if sys.version_info < OLDEST:
        words = f"Python {OLDEST[0]}.{OLDEST[1]} or newer (this is {platform.python_version()})"
        return [(f"{words}; name another one: make PYTHON=...", "")]
    if find_spec("ensurepip") is None or find_spec("venv") is None:
        own = os.path.basename(sys.executable or "python3")  # noqa: PTH119
        name = own if own.startswith("python3.") else "python3"
        return [("the module venv of Python", f"{name}-venv")]
    return []


def lab_needs() -> list[tuple[str, str]]:
    """Return what lab boards need and this computer lacks, each with its package ("" if none has
    it).
    """
    if platform.system() != "Linux" or platform.machine() not in {"x86_64", "AMD64"}:
        here = f"{platform.system()} on {platform.machine()}"
        return [
            (f"Linux on x86_64, because the NPU emulator runs nowhere else (this is {here})", "")
        ]
    if has_board_programs():
        return []
    if find("apt-get") is None or find("dpkg-deb") is None:
        what = [("sshd of OpenSSH", find("sshd")), (ATOMIC, has_library(ATOMIC))]
        return [
            (f"{name}, from the package manager of this system", "")
            for name, there in what
            if not there
        ]
    lacks = []
    if not any(map(os.path.exists, KEYS)):
        lacks.append(("the keys of Debian's archive", "debian-archive-keyring"))
    programs = {"tar": "tar", "unshare": "util-linux", "setpriv": "util-linux", "mount": "mount"}
    for program, package in programs.items():
        if find(program) is None:
            lacks.append((f"the program {program}", package))
    return lacks


def command(packages: list[str]) -> str:
    """Return the command line that installs Debian packages, for the user to type."""
    steps = [f"apt-get install -y --no-install-recommends {' '.join(packages)}"]
    if not glob.glob("/var/lib/apt/lists/*Packages*"):  # noqa: PTH207
        steps.insert(0, "apt-get update")
    if os.geteuid() == 0:
        return " && ".join(steps)
    if find("sudo"):
        return " && ".join(f"sudo {step}" for step in steps)
    return f"su -c {shlex.quote(' && '.join(steps))}"


def missing_message(lacks: list[tuple[str, str]]) -> tuple[str, str]:
    """Return the message that lists everything that is missing, and the command to type."""
    packages = list(dict.fromkeys(package for _, package in lacks if package))
    return (
        f"this computer is missing: {'; '.join(what for what, _ in lacks)}",
        command(packages) if packages else "",
    )


def main() -> None:
    """Run `python3 host.py [demo]`; exit with 1 and the list if something is missing."""
    lacks = environment_needs() + (lab_needs() if "demo" in sys.argv[1:] else [])
    if lacks:
        message, cure = missing_message(lacks)
        sys.stderr.write(f"error: {message}\n" + (f"  try: {cure}\n" if cure else ""))
        sys.exit(1)


if __name__ == "__main__":
    main()
