"""A process of this machine with three streams and a deadline. Its children end with it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Unpack

from fleet.model.command import Result
from fleet.model.deadline import Deadline
from fleet.model.errors import DeadlineError, UnreachableError
from fleet.model.files import Span
from fleet.transport.base import Streams, Traffic
from fleet.transport.streams import Collector, Feeder, start

_CHUNK = 1 << 16
_LOOK_SECONDS = 3600.0
Frames = Callable[[Callable[[bytes], object]], Callable[[bytes], object]]
_PIPE = 1 << 20  # the maximum for an ordinary user: fewer context switches


class Processes:
    """A runner of processes that can kill those that still run."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._running: set[subprocess.Popen[bytes]] = set()

    def end_all(self) -> None:
        """Kill the processes that still run."""
        for process in list(self._running):
            end(process)

    def run(
        self,
        argv: Sequence[str],
        what: str,
        deadline: Deadline,
        *,
        env: Mapping[str, str] | None = None,
        **streams: Unpack[Streams],
    ) -> Result:
        """Run a process to its end; see Transport.run. The status is negative after a signal."""
        return self.follow(self.start(argv, env), what, deadline, **streams)

    def start(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process with three pipes. `end_all` kills it."""
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
            env=env,
        )
        self._running.add(process)
        return process

    def follow(
        self,
        process: subprocess.Popen[bytes],
        what: str,
        deadline: Deadline,
        *,
        head: bytes = b"",
        frames: Frames | None = None,
        **streams: Unpack[Streams],
    ) -> Result:
        """Do the work of `run` for a process that has been started.

        `head` goes before its standard input. `frames` wraps the receivers of its output.
        """
        started = time.monotonic()
        self._traffic.add(round_trips=1)
        stdin, stdout, stderr = pipes(process)
        out = Collector(self._traffic, streams.get("on_stdout"))
        err = Collector(self._traffic, streams.get("on_stderr"))
        framed = frames or (lambda take: take)
        pipe = Pipe(stdin, deadline)
        with contextlib.suppress(OSError):  # the process has ended; its status shows how
            pipe.write(head)
        feeder = Feeder(self._traffic, streams.get("stdin", ()), pipe.write, stdin.close, pipe.move)
        readers = [
            start(_pump, stdout, framed(out.take), deadline),
            start(_pump, stderr, framed(err.take), deadline),
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


def pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
    """Return (stdin, stdout, stderr) of a process. Raises UnreachableError without pipes."""
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise UnreachableError("a program was started without pipes")
    return process.stdin, process.stdout, process.stderr


def _wait(process: subprocess.Popen[bytes], what: str, deadline: Deadline) -> int:
    while True:
        try:
            return process.wait(_left(process, deadline.remaining))
        except subprocess.TimeoutExpired:
            if not deadline.expired:
                continue
            end(process)
            raise DeadlineError(
                f"the program '{what}' did not end within {deadline.waited} s"
            ) from None


def _left(process: subprocess.Popen[bytes], seconds: float) -> float:
    """Wait for the end of the process and return the remaining seconds.

    Popen alone polls every 50 ms.
    """
    try:
        ended = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # macOS, Linux before 5.3, or already waited for
        return seconds
    try:
        waiting = select.poll()
        waiting.register(ended, select.POLLIN)
        waiting.poll(min(seconds, _LOOK_SECONDS) * 1000)
    finally:
        os.close(ended)
    return 0


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group that a process of fleet leads. It contains no other processes."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Pipe:
    """The standard input of a process."""

    def __init__(self, pipe: IO[bytes], deadline: Deadline) -> None:
        self._fd = pipe.fileno()
        self._deadline = deadline
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):  # the user's limit of pipe memory may be used up
                fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, _PIPE)

    def write(self, chunk: bytes) -> None:
        """Write the whole chunk."""
        view = memoryview(chunk)
        while view:
            view = view[os.write(self._fd, view) :]
            self._deadline.touch()

    def move(self, span: Span) -> None:
        """Send a part of a file from the page cache into the pipe without copying it here."""
        if not sys.platform.startswith("linux"):
            self.write(span.load())
            return
        with span.path.open("rb", buffering=0) as stream:
            at = span.start
            while at < span.end:
                count = os.sendfile(self._fd, stream.fileno(), at, span.end - at)
                if not count:
                    raise span.changed()
                at += count
                self._deadline.touch()


def _pump(pipe: IO[bytes], take: Callable[[bytes], object], deadline: Deadline) -> None:
    with pipe:
        while chunk := os.read(pipe.fileno(), _CHUNK):
            deadline.touch()
            take(chunk)
