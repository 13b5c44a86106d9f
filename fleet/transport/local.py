"""This machine as a device: the same commands, the same quoting, no network."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from typing import IO

from fleet.model.command import Command, Result
from fleet.model.deadline import Deadline
from fleet.model.errors import DeadlineError, UnreachableError
from fleet.transport.base import Identity, Output, Traffic
from fleet.transport.quote import render
from fleet.transport.streams import Collector, Feeder, start

_CHUNK = 1 << 16


class LocalTransport:
    """Runs commands with the shell of this machine."""

    def __init__(self) -> None:
        self.traffic = Traffic()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._open = False

    @property
    def describe(self) -> str:
        """Always `local`."""
        return "local"

    def open(self, deadline: Deadline) -> None:
        """Nothing to connect; only the deadline is looked at."""
        deadline.check("opening the local transport")
        self._open = True

    def close(self) -> None:
        """End what still runs."""
        self._open = False
        for process in list(self._running):
            _end(process)

    def identity(self, deadline: Deadline) -> Identity:
        """The name of this machine."""
        deadline.check("asking for the identity")
        return Identity("local", socket.gethostname())

    def run(
        self,
        command: Command,
        deadline: Deadline,
        *,
        stdin: Iterable[bytes] = (),
        on_stdout: Output | None = None,
        on_stderr: Output | None = None,
    ) -> Result:
        """See Transport.run."""
        if not self._open:
            raise UnreachableError("the local transport is not open")
        started = time.monotonic()
        self.traffic.add(round_trips=1)
        process = subprocess.Popen(
            ["sh", "-c", render(command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise UnreachableError("the local shell has no pipes")
        self._running.add(process)
        out, err = Collector(self.traffic, on_stdout), Collector(self.traffic, on_stderr)
        feeder = Feeder(self.traffic, stdin, _writer(process.stdin, deadline), process.stdin.close)
        readers = [
            start(_pump, process.stdout, out, deadline),
            start(_pump, process.stderr, err, deadline),
        ]
        try:
            status = self._wait(process, command, deadline)
        finally:
            feeder.stop()
            self._running.discard(process)
        for thread in (*readers, feeder.thread):
            thread.join(deadline.remaining + 1)
        for stream in (feeder, out, err):
            stream.check()
        seconds = time.monotonic() - started
        return Result(status if status >= 0 else 128 - status, out.taken, err.taken, seconds)

    def _wait(self, process: subprocess.Popen[bytes], command: Command, deadline: Deadline) -> int:
        while True:
            try:
                return process.wait(deadline.remaining)
            except subprocess.TimeoutExpired:
                if not deadline.expired:
                    continue
                _end(process)
                raise DeadlineError(
                    f"'{command.argv[0]}' did not end within {deadline.seconds:g} s"
                ) from None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group that the command leads; it is ours alone."""
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
