"""A command of this machine with three streams, a deadline, and an end that takes its children."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import IO

from fleet.model.command import Result
from fleet.model.deadline import Deadline
from fleet.model.errors import DeadlineError, UnreachableError
from fleet.transport.base import Output, Traffic
from fleet.transport.streams import Collector, Feeder, start

_CHUNK = 1 << 16


class Processes:
    """Starts processes, and ends those that still run."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._running: set[subprocess.Popen[bytes]] = set()

    def end_all(self) -> None:
        """Kill what still runs."""
        for process in list(self._running):
            end(process)

    def run(
        self,
        argv: Sequence[str],
        what: str,
        deadline: Deadline,
        *,
        stdin: Iterable[bytes] = (),
        on_stdout: Output | None = None,
        on_stderr: Output | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Result:
        """Run to the end; the status is negative when a signal ended it. See Transport.run."""
        started = time.monotonic()
        self._traffic.add(round_trips=1)
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
            env=env,
        )
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise UnreachableError(f"{argv[0]} has no pipes")
        self._running.add(process)
        out, err = Collector(self._traffic, on_stdout), Collector(self._traffic, on_stderr)
        feeder = Feeder(self._traffic, stdin, _writer(process.stdin, deadline), process.stdin.close)
        readers = [
            start(_pump, process.stdout, out, deadline),
            start(_pump, process.stderr, err, deadline),
        ]
        try:
            status = _wait(process, what, deadline)
        finally:
            feeder.stop()
            self._running.discard(process)
        for thread in (*readers, feeder.thread):
            thread.join(deadline.remaining + 1)
        for stream in (feeder, out, err):
            stream.check()
        return Result(status, out.taken, err.taken, time.monotonic() - started)


def _wait(process: subprocess.Popen[bytes], what: str, deadline: Deadline) -> int:
    while True:
        try:
            return process.wait(deadline.remaining)
        except subprocess.TimeoutExpired:
            if not deadline.expired:
                continue
            end(process)
            raise DeadlineError(f"'{what}' did not end within {deadline.seconds:g} s") from None


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group that a process of ours leads; it is ours alone."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _writer(pipe: IO[bytes], deadline: Deadline) -> Output:
    def write(chunk: bytes) -> None:
        view = memoryview(chunk)
        while view:
            view = view[os.write(pipe.fileno(), view) :]
            deadline.touch()

    return write


def _pump(pipe: IO[bytes], collector: Collector, deadline: Deadline) -> None:
    with pipe:
        while chunk := os.read(pipe.fileno(), _CHUNK):
            deadline.touch()
            collector.take(chunk)
