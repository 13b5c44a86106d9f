"""One process, timed as a whole, with the CPU of all that it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .ending import end_marked
from .stats import Figures

RUN = "FLEET_BENCH_RUN"
MARK = "FIGURES "  # a child with something to tell prints this and one JSON object


@dataclass(frozen=True)
class Ran:
    """`rss_mib` is of the largest process of the tree; `in_time` is False for one we ended."""

    seconds: float
    cpu: float
    rss_mib: float
    status: int
    out: str
    err: str
    in_time: bool = True

    @property
    def ok(self) -> bool:
        return self.in_time and self.status == 0

    @property
    def words(self) -> str:
        """The last words, for a message."""
        lines = [line for line in (self.out + "\n" + self.err).splitlines() if line.strip()]
        return " | ".join(line.strip() for line in lines[-3:])[-400:] or f"status {self.status}"

    def figures(self) -> Figures:
        found: Figures = {"seconds": self.seconds, "cpu": self.cpu, "rss_mib": self.rss_mib}
        for line in self.out.splitlines():
            if line.startswith(MARK):
                found |= {
                    name: float(value) for name, value in json.loads(line[len(MARK) :]).items()
                }
        return found


def run(argv: Sequence[str], *, limit: float, env: Mapping[str, str], cwd: Path) -> Ran:
    """Run to the end, or to `limit` seconds. What it leaves running is ended, too: workers with
    a session of their own, ssh masters that wait for the next run.
    """
    mark = f"{RUN}={uuid.uuid4()}"
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.perf_counter()
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, **env, RUN: mark.partition("=")[2]},
            cwd=cwd,
            start_new_session=True,
        )
        ended = threading.Event()
        watch = threading.Timer(limit, _end, (child.pid, ended))
        watch.daemon = True  # a signal may arrive before it can be cancelled
        try:
            watch.start()
            _, status, usage = os.wait4(child.pid, 0)
            seconds = time.perf_counter() - began
            child.returncode = os.waitstatus_to_exitcode(status)
        finally:  # a benchmark that is cut leaves it no more than one that goes on
            watch.cancel()
            end_marked(mark.encode())
        texts = [_text(out), _text(err)]
    return Ran(
        seconds,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
        child.returncode,
        texts[0],
        texts[1],
        not ended.is_set(),
    )


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode("utf-8", "replace")


def _end(pid: int, ended: threading.Event) -> None:
    ended.set()
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        ended.clear()  # it ended by itself in this instant
