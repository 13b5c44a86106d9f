"""Another clock beside those that fleet reports: in the same process, around the same work, so that
no load of the machine comes between them.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transport.sshd import Sshd, running

from .seen import saw_clock

HERE = Path(__file__).parent


def beside(runner: str, what: str, by: str, reported: float | None, other: float) -> None:
    """Keep what both say; they are within 2 %."""
    assert reported == pytest.approx(other, rel=0.02)
    assert reported is not None
    saw_clock(runner, what, by, abs(reported / other - 1))


@contextlib.contextmanager
def board(folder: Path) -> Iterator[tuple[Sshd, Path]]:
    """(a board whose python3 starts our scripts below script_clock.py, the file of times)."""
    times, programs, home = folder / "times.json", folder / "programs", folder / "home"
    programs.mkdir()
    home.mkdir()  # the shell's own files may put another python3 before this one
    script = programs / "python3"
    script.write_text(
        "#!/bin/sh\ncase $2 in\n*fleet_litert.py | *fleet_genai.py) "
        f'shift; set -- -I {HERE / "script_clock.py"} {times} "$@" ;;\nesac\n'
        f'exec {shutil.which("python3")} "$@"\n'
    )
    script.chmod(0o755)
    place = folder / "board"
    env = f'"PATH={programs}:/usr/bin:/bin" "HOME={home}" "FLEET_LEASE_DIR={place}/leases"'
    with running(place, f"SetEnv={env}") as server:
        yield server, times


def clocked(program: Path) -> Path:
    """Preload clock.c into a program that debian.wrapped made; returns the file of its times."""
    shim, times = program.with_suffix(".so"), program.with_suffix(".clock")
    argv = ["cc", "-shared", "-fPIC", "-O2", str(HERE / "clock.c"), "-o", str(shim), "-ldl"]
    subprocess.run(argv, check=True, timeout=120)
    text = program.read_text().replace("exec ", f"FLEET_CLOCK={times} exec ", 1)
    program.write_text(text.replace("--library-path", f"--preload {shim} --library-path"))
    return times
