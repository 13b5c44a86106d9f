"""`.ci/working.sh`: one line that moves on a terminal, quiet elsewhere, all of it on failure."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / ".ci" / "working.sh"
SLOW = "for n in 1 2 3; do echo Collecting package$n; sleep 0.6; done"


def on_a_terminal(script: str) -> tuple[int, str]:
    ours, theirs = pty.openpty()
    with subprocess.Popen(["sh", PROGRAM, "installing", "sh", "-c", script], stderr=theirs) as run:
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 4096):
                said += part
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    return run.returncode, said.decode()


def test_one_line_moves_on_a_terminal() -> None:
    code, said = on_a_terminal(SLOW)
    assert code == 0
    assert said.count("\n") == 1, "the text; all else is drawn over"
    drawn = said.split("\r\x1b[K")
    assert len(drawn) >= 4
    assert {"package1", "package3"} <= set(re.findall(r"package\d", said))
    assert drawn[-1] == "", "nothing is left of the line"
    assert all(len(line) < 80 for line in drawn)


@pytest.mark.parametrize(("code", "more"), [(0, ""), (3, "Collecting it\n")])
def test_elsewhere_it_is_quiet_and_a_failure_is_told_in_full(code: int, more: str) -> None:
    argv = ["sh", str(PROGRAM), "installing", "sh", "-c", f"echo Collecting it; exit {code}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == f"installing\n{more}"


@pytest.mark.parametrize(
    ("fails", "cure"),
    [("ruff format", "ruff format ."), ("ruff check", "ruff check --fix ."), ("", "")],
)
def test_make_check_prints_the_command_that_mends(tmp_path: Path, fails: str, cure: str) -> None:
    """The tools are stand-ins: the Makefile is what is tested."""
    (tmp_path / "bin").mkdir()
    for name in ("python", "ruff", "mypy", "shellcheck"):
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\n[ "{name} $1" != "{fails}" ]\n')
        program.chmod(0o755)
    for stamp in (".installed", ".installed-dev"):
        (tmp_path / stamp).touch()
    done = subprocess.run(
        ["make", "check", f"VENV={tmp_path}"],
        cwd=PROGRAM.parents[1], capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert bool(done.returncode) == bool(fails)
    lines = [line for line in done.stderr.splitlines() if line.startswith("to mend this")]
    assert lines == ([f"to mend this, type: {tmp_path}/bin/{cure}"] if fails else [])
