"""Programs that a machine may not have: a test that needs one is skipped, and the reason names it.

The closing summary of a run (`tests/conftest.py`) counts the skipped tests by these reasons.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from fleet.model.errors import LabError

PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/local/sbin:/usr/sbin:/sbin"))
BUILD_SECONDS = 60.0
# What the lab says is not installed, with a program of it.
LAB_PACKAGES = {
    "adb": "adb",
    "dpkg": "dpkg-deb",
    "e2fsprogs": "mke2fs",
    "iproute2": "ip",
    "mmdebstrap": "mmdebstrap",
    "openssh-client": "ssh-keygen",
    "openssh-server": "sshd",
    "passwd": "useradd",
    "qemu-user-static": "qemu-aarch64-static",
    "ssh-keygen": "ssh-keygen",
    "user-mode-linux": "linux.uml",
    "util-linux": "unshare",
}


def tool(name: str, package: str = "") -> str:
    """Return the path of a program, also of one in /usr/sbin. Skips the test if there is none."""
    found = shutil.which(name, path=PATH)
    if found is None:
        pytest.skip(f"no {name} on this machine: apt-get install {package or name}")
    return found


def compiler() -> str:
    """Return a C compiler that can link a program. Skips the test if there is none."""
    found = _compiler()
    if not found:
        pytest.skip("no C compiler on this machine: apt-get install gcc libc6-dev")
    return found


@cache
def _compiler() -> str:
    """Return the path of a compiler that has the headers and the C library, or ""."""
    found = shutil.which("gcc") or shutil.which("cc")
    with tempfile.TemporaryDirectory() as folder:
        argv = [str(found), "-x", "c", "-", "-o", str(Path(folder) / "program")]
        source = b'#include <stdio.h>\nint main(void) { return puts("") < 0; }\n'
        tried = found and subprocess.run(
            argv, input=source, capture_output=True, check=False, timeout=BUILD_SECONDS
        )
    return str(found) if tried and tried.returncode == 0 else ""


def library(name: str, package: str) -> None:
    """Skip the test if the loader of this machine does not find a shared library."""
    try:
        ctypes.CDLL(name)
    except OSError:
        pytest.skip(f"no {name} on this machine: apt-get install {package}")


@contextlib.contextmanager
def missing_programs() -> Iterator[None]:
    """Skip a test in which a program could not be started because this machine has not got it."""
    try:
        yield
    except LabError as error:
        named = re.findall(r"[a-z0-9-]+", error.message)
        programs = [LAB_PACKAGES[name] for name in named if name in LAB_PACKAGES]
        if "not installed" not in error.message or all(map(_has, programs)):
            raise
        pytest.skip(f"{error.message} (apt-get install)")
    except FileNotFoundError as error:
        name = error.filename
        if not isinstance(name, str) or os.sep in name or shutil.which(name):
            raise
        pytest.skip(f"no {name} on this machine: apt-get install {name}")


def _has(program: str) -> bool:
    return shutil.which(program, path=PATH) is not None


def summary(reasons: Iterable[str]) -> list[str]:
    """Return a line for each reason to skip, with the number of tests; the most frequent first."""
    counted = Counter(re.sub(r"\s+", " ", one.removeprefix("Skipped: ")) for one in reasons)
    order = sorted(counted.items(), key=lambda one: (-one[1], one[0]))
    return [f"{number:6}  {reason}" for reason, number in order]
