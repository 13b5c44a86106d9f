"""Programs that tests build: each says that it is a stand-in, and does real work."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests import needs

FOLDER = Path(__file__).parent
BUILD_SECONDS = 60.0


def built(name: str, folder: Path) -> Path:
    """`name`.c as a program in `folder`; the test is skipped where no compiler is."""
    target = folder / name
    argv = [needs.compiler(), "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(target)]
    subprocess.run([*argv, str(FOLDER / f"{name}.c"), "-ldl"], check=True, timeout=BUILD_SECONDS)
    return target
