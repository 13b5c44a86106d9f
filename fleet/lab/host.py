"""What a computer must have before fleet's environment and its demo can be made: one list.

Standard library only: `make` runs this file with the Python that it found, before it installs
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
ATOMIC = "libatomic.so.1"  # QAIRT's libQnnSystem needs it
_LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/lib/x86_64-linux-gnu")


def find(program: str) -> str | None:
    """Return the path of a program, also in the folders of the administrator."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/local/sbin"
    return shutil.which(program, path=path)


def has_library(name: str) -> bool:
    """Return True if one of the usual folders of x86_64 Linux has the library."""
    return any(os.path.exists(f"{folder}/{name}") for folder in _LIBRARIES)  # noqa: PTH110


def has_board_programs() -> bool:
    """Return True if boards of an ordinary user need nothing but what this computer has."""
    return find("sshd") is not None and has_library(ATOMIC)


def environment_needs() -> list[tuple[str, str]]:
    """Return what a virtual environment lacks here, each with the package that has it."""
    if sys.version_info < OLDEST:
        words = f"Python {OLDEST[0]}.{OLDEST[1]} or newer (this is {platform.python_version()})"
        return [(f"{words}; name another one: make PYTHON=...", "")]
    if find_spec("ensurepip") is None or find_spec("venv") is None:
        own = os.path.basename(sys.executable or "python3")  # noqa: PTH119
        name = own if own.startswith("python3.") else "python3"
        return [("the module venv of Python", f"{name}-venv")]
    return []


def lab_needs() -> list[tuple[str, str]]:
    """Return what lab boards lack here, each with the package that has it ("": none has it)."""
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
    """Return the line that installs packages of Debian, for the user who types it."""
    steps = [f"apt-get install -y --no-install-recommends {' '.join(packages)}"]
    if not glob.glob("/var/lib/apt/lists/*Packages*"):  # noqa: PTH207
        steps.insert(0, "apt-get update")
    if os.geteuid() == 0:
        return " && ".join(steps)
    if find("sudo"):
        return " && ".join(f"sudo {step}" for step in steps)
    return f"su -c {shlex.quote(' && '.join(steps))}"


def told(lacks: list[tuple[str, str]]) -> tuple[str, str]:
    """Return the message that lists everything that is missing, and what to type."""
    packages = list(dict.fromkeys(package for _, package in lacks if package))
    return (
        f"this computer is missing: {'; '.join(what for what, _ in lacks)}",
        command(packages) if packages else "",
    )


def main() -> None:
    """Run as `python3 host.py [demo]`; exit 1 with the list if something is missing."""
    lacks = environment_needs() + (lab_needs() if "demo" in sys.argv[1:] else [])
    if lacks:
        message, cure = told(lacks)
        sys.stderr.write(f"error: {message}\n" + (f"  try: {cure}\n" if cure else ""))
        sys.exit(1)


if __name__ == "__main__":
    main()
