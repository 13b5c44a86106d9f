"""A benchmark that is cut ends what it started: processes by a mark, its folder, then itself."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

MARK = "FLEET_BENCH_WHOLE"  # in the environment of all that one benchmark starts
PATIENCE_SECONDS = 30.0  # a lab of 200 boards takes some to go down
_LOOK_SECONDS = 0.05
_CUTS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def marked(mark: bytes) -> list[int]:
    """Processes other than this one with `NAME=value` in the environment they began with."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def end_marked(mark: bytes, number: signal.Signals = signal.SIGKILL) -> list[int]:
    """Signal them; those that there were."""
    found = marked(mark)
    for pid in found:
        with contextlib.suppress(OSError):
            os.kill(pid, number)
    return found


def sweep(mark: bytes, patience: float = PATIENCE_SECONDS) -> None:
    """End them; who does not go when asked, a moment later by force."""
    until = time.monotonic() + patience
    left = end_marked(mark, signal.SIGTERM)
    while left and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
        left = marked(mark)
    end_marked(mark)


class Cut(SystemExit):
    """A signal asked for the end; the status is that of a shell, 128 and its number."""


@contextlib.contextmanager
def tidy(top: Path) -> Iterator[Path]:
    """A new folder in `top`. Inside, SIGTERM, SIGINT and SIGHUP raise Cut, so that `finally`
    runs; afterwards the folder and all processes that were started inside are gone. A second
    signal does not end the tidying.
    """
    value = str(uuid.uuid4())
    before = {number: signal.signal(number, _cut) for number in _CUTS}
    os.environ[MARK] = value
    folder = top / f"fleet-bench-{value[:8]}"
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        _deaf()
        del os.environ[MARK]
        sweep(f"{MARK}={value}".encode())
        shutil.rmtree(folder, ignore_errors=True)
        for number, handler in before.items():
            signal.signal(number, handler)


def _cut(number: int, _: FrameType | None) -> None:
    _deaf()
    raise Cut(128 + number)


def _deaf() -> None:
    """Not SIG_IGN: programs that are started meanwhile would inherit that."""
    for one in _CUTS:
        signal.signal(one, lambda *_: None)
