"""A workstation of another system gets a sentence, and no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fleet.cli.entry import SYSTEMS

ROOT = Path(__file__).parents[2]
# What Python lacks on Windows, hidden before anything of fleet is imported.
_HIDDEN = """
import os, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in {"fcntl", "pwd", "grp", "termios", "tty", "resource"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in ("fcntl", "pwd", "grp", "termios", "tty", "resource"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Hidden())
for name in ("geteuid", "getuid", "getgid", "fork", "killpg", "setsid"):
    delattr(os, name)
sys.platform = "win32"
from fleet.cli.entry import main
main()
"""


@pytest.mark.parametrize("words", ["plan", "facts", "doctor --log -", "lab up", "--version", "-h"])
def test_windows_gets_one_sentence(words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HIDDEN, *words.split()],
        capture_output=True, text=True, check=False, timeout=60, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    first, cure = done.stderr.splitlines()
    assert first == f"error: fleet runs on {SYSTEMS}; this Python is one of Windows"
    assert "wsl --install" in cure


def test_the_pages_name_the_systems() -> None:
    for page in ("README.md", "docs/install.md"):
        assert SYSTEMS in (ROOT / page).read_text("utf-8"), page
