"""A user-mode Linux that boots on this CPU: that of the machine, else that of Debian unstable."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from fleet.lab.host import find
from fleet.lab.kernel import UML, can_run_kernel
from fleet.runtimes.stage import file_lock
from tests.apt import SECONDS, downloaded
from tests.support_runtime import cache_root


def needs_kernel_boards() -> None:
    """Skip the test, with the reason, if kernel boards cannot run here.

    A kernel that does not boot on this CPU is replaced, for this process, by that of unstable.
    """
    why = can_run_kernel() or ("" if find(UML) else "user-mode-linux is not installed")
    if "AMX" in why:
        try:
            place = str(_newer().parent)
        except OSError as error:
            pytest.skip(f"no kernel boards here: {why}; {error}")
        os.environ["PATH"] = f"{place}:{os.environ['PATH']}"
        why = can_run_kernel()
    if why:
        pytest.skip(f"no kernel boards here: {why}")


def _newer() -> Path:
    """Return linux.uml of Debian unstable, unpacked in the cache. Raises OSError."""
    folder = cache_root() / "user-mode-linux-sid"
    with file_lock(cache_root() / "user-mode-linux.lock", SECONDS):
        if not (folder / "tree" / "usr" / "bin" / UML).is_file():
            (package,) = downloaded(folder, ("user-mode-linux",), "main")
            argv = ["dpkg-deb", "-x", str(package), str(folder / "tree")]
            subprocess.run(argv, check=True, capture_output=True, timeout=SECONDS)
    return folder / "tree" / "usr" / "bin" / UML
