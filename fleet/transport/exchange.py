"""A command on a session channel of paramiko: its command line, three streams and exit status."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future

import paramiko

from fleet.model.deadline import Deadline
from fleet.model.errors import DeadlineError
from fleet.model.files import Chunk
from fleet.transport.base import Output, Traffic
from fleet.transport.loop import Framed
from fleet.transport.streams import BROKEN, Collector, Feeder, start

SLICE_SECONDS = 0.5  # interval at which a waiting stream checks the deadline
_CHUNK = 1 << 16
_PACKET = 1 << 15  # paramiko's largest packet; a longer slice would only be copied once more
_BROKEN = (*BROKEN, paramiko.SSHException)


class Exchange:
    """A command on a channel. `frames` are those of its two streams if a loop runs it."""

    def __init__(
        self,
        what: str,
        deadline: Deadline,
        traffic: Traffic,
        outputs: tuple[Output | None, Output | None],
        channel: paramiko.Channel,
    ) -> None:
        """Prepare a command. `what` is its program, for errors; `outputs` receive the output."""
        self.channel, self.deadline = channel, deadline
        self._what, self._traffic = what, traffic
        self.out, self.err = (Collector(traffic, output) for output in outputs)
        self.frames: tuple[Framed, ...] = ()
        self.status = -1
        self._feeder: Feeder | None = None
        channel.settimeout(min(deadline.remaining, SLICE_SECONDS))

    def framed(self, number: int = 0, word: bytes = b"", *, last: bool = False) -> None:
        """Remove the loop's marks from the output of command `number`; `word` is as in Framed."""
        takes = self.out.take, self.err.take
        self.frames = tuple(Framed(take, number, word, last=last) for take in takes)

    def begin(self, line: str) -> None:
        """Call exec_command, which by itself waits forever for an answer (paramiko 3 and 4)."""
        answered: Future[None] = Future()
        start(_ask, answered, self.channel, line)
        while True:
            try:
                return answered.result(min(self.deadline.remaining, SLICE_SECONDS))
            except TimeoutError:
                if answered.done():  # answered in the meantime, or failed with this error
                    return answered.result()
                self._check()

    def write(self, data: bytes) -> None:
        """Send a request to a loop.

        Raises the errors of a broken channel, and DeadlineError if the device does not read.
        """
        try:
            _Writer(self.channel, self.deadline)(data)
        except TimeoutError:
            self._check()
            raise

    def feed(self, stdin: Iterable[Chunk]) -> None:
        """Send standard input and its end, in a thread."""
        write, end = _Writer(self.channel, self.deadline), self.channel.shutdown_write
        self._feeder = Feeder(self._traffic, stdin, write, end, broken=_BROKEN)

    @property
    def whole(self) -> bool:
        """True if both streams ended with the loop's mark. The loop then waits for another
        command.
        """
        return bool(self.frames) and all(frame.status is not None for frame in self.frames)

    @property
    def begun(self) -> bool:
        """True if the command may have started, False if the loop had ended before."""
        return not self.frames or any(frame.begun for frame in self.frames)

    def wait(self) -> None:
        """Wait for the end and set `status`, negative if none arrived. Raises DeadlineError."""
        readers = self._readers()
        if self.frames and self._feeder is None:
            self._join(readers)
        if not self.whole:
            self._await_status()
            if self._feeder is not None:
                self._feeder.stop()
            for reader in readers:
                reader.join(self.deadline.remaining + SLICE_SECONDS)
        ended = self.frames[0].status if self.whole else None
        self.status = self.channel.recv_exit_status() if ended is None else ended

    def check(self) -> None:
        """Raise the error of the source of standard input or of a receiver of output."""
        for stream in (self._feeder, self.out, self.err):
            if stream is not None:
                stream.check()

    def _readers(self) -> list[threading.Thread]:
        takes = self.frames or (_endless(self.out.take), _endless(self.err.take))
        receives = self.channel.recv, self.channel.recv_stderr
        return [
            start(_drain, receive, take, self.deadline)
            for receive, take in zip(receives, takes, strict=True)
        ]

    def _join(self, readers: list[threading.Thread]) -> None:
        """Wait until both marks arrived, or until the loop itself has ended."""
        for reader in readers:
            while reader.is_alive() and not self.channel.status_event.is_set():
                reader.join(self._patience())
                if reader.is_alive():
                    self._check()

    def _await_status(self) -> None:
        while not self.channel.status_event.wait(self._patience()):
            if self.channel.closed:
                return
            self._check()

    def _patience(self) -> float:
        return min(self.deadline.remaining, SLICE_SECONDS)

    def _check(self) -> None:
        if self.deadline.expired:
            raise DeadlineError(
                f"the program '{self._what}' on the device did not end within "
                f"{self.deadline.waited} s"
            )


def _ask(answered: Future[None], channel: paramiko.Channel, line: str) -> None:
    try:
        channel.exec_command(line)
    except Exception as error:  # noqa: BLE001 - raised in the thread that waits
        answered.set_exception(error)
    else:
        answered.set_result(None)


class _Writer:
    """A writer of whole chunks to a channel that stops at the deadline."""

    def __init__(self, channel: paramiko.Channel, deadline: Deadline) -> None:
        self._channel = channel
        self.deadline = deadline

    def __call__(self, chunk: bytes) -> None:
        view = memoryview(chunk)
        while view:
            if self.deadline.expired:  # a lost lease expires the deadline too
                raise TimeoutError
            with contextlib.suppress(TimeoutError):
                view = view[self._channel.send(bytes(view[:_PACKET])) :]
                self.deadline.touch()


def _endless(take: Callable[[bytes], None]) -> Callable[[bytes], bool]:
    def taken(chunk: bytes) -> bool:
        take(chunk)
        return False

    return taken


def _drain(
    receive: Callable[[int], bytes], take: Callable[[bytes], bool], deadline: Deadline
) -> None:
    """Forward chunks of `receive` until the stream ends or `take` returns True."""
    try:
        while chunk := _received(receive, deadline):
            deadline.touch()
            if take(chunk):
                return
    finally:
        if isinstance(take, Framed):
            take.close()


def _received(receive: Callable[[int], bytes], deadline: Deadline) -> bytes:
    """Return the next chunk of `receive`, b"" at the end, after an error or at the deadline."""
    while True:
        try:
            return receive(_CHUNK)
        except TimeoutError:
            if deadline.expired:
                return b""
        # the message about free buffer space can fail too
        except (OSError, EOFError, paramiko.SSHException):
            return b""
