"""A benchmark that is cut leaves no process and no folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A daemon that the run forgets, as a lab that still boots; and a tool that is being timed.
CODE = """
import subprocess, sys
from pathlib import Path
from benchmarks.bench.child import run
from benchmarks.bench.ending import tidy
top = Path(sys.argv[1])
with tidy(top) as folder:
    (folder / "big").write_text("x")
    daemon = subprocess.Popen(["sleep", "600"], start_new_session=True)
    script = 'echo "$$ $1" > "$2.part" && mv "$2.part" "$2" && exec sleep 600'
    words = ["sh", "-c", script, "it", str(daemon.pid), str(top / "pids")]
    run(words, limit=600, env={}, cwd=folder)
"""

EARLY = """
import threading
begin = threading.Timer.start
def start(self):
    begin(self)
    raise SystemExit(7)
threading.Timer.start = start
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_after_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CODE, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    ) as script:
        said = tmp_path / "pids"
        end = time.monotonic() + 60
        while not said.exists() and script.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        pids = [int(one) for one in said.read_text().split()]
        assert all(map(_runs, pids))
        assert len(list(tmp_path.glob("fleet-bench-*"))) == 1
        script.send_signal(number)
        assert script.wait(60) == 128 + number
    assert not any(map(_runs, pids))
    assert not list(tmp_path.glob("fleet-bench-*"))


def test_a_signal_as_soon_as_the_tool_runs_does_not_wait_for_its_limit(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EARLY + CODE, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        timeout=60,
    )
    assert done.returncode == 7
    assert not list(tmp_path.glob("fleet-bench-*"))


def _runs(pid: int) -> bool:
    """Whether it is there and is more than an entry that nobody has read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
