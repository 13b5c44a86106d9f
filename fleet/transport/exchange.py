"""One command on a session channel of paramiko's: its line, its three streams, its end."""

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

SLICE_SECONDS = 0.5  # how often a waiting stream looks at the deadline
_CHUNK = 1 << 16
_PACKET = 1 << 15  # paramiko's largest packet; a longer slice would only be copied again
_BROKEN = (*BROKEN, paramiko.SSHException)


class Exchange:
    """A command on a channel. `frames`: those of its two streams, where a loop runs it."""

    def __init__(
        self,
        what: str,
        deadline: Deadline,
        traffic: Traffic,
        outputs: tuple[Output | None, Output | None],
        channel: paramiko.Channel,
    ) -> None:
        """`what` is the program, for errors; `outputs` take what it prints as it comes."""
        self.channel, self.deadline = channel, deadline
        self._what, self._traffic = what, traffic
        self.out, self.err = (Collector(traffic, output) for output in outputs)
        self.frames: tuple[Framed, ...] = ()
        self.status = -1
        self._feeder: Feeder | None = None
        channel.settimeout(min(deadline.remaining, SLICE_SECONDS))

    def framed(self, number: int = 0, word: bytes = b"", *, last: bool = False) -> None:
        """What comes stands between the marks of a loop: see Framed."""
        takes = self.out.take, self.err.take
        self.frames = tuple(Framed(take, number, word, last=last) for take in takes)

    def begin(self, line: str) -> None:
        """exec_command, which by itself waits for its answer without end (paramiko 3 and 4)."""
        answered: Future[None] = Future()
        start(_ask, answered, self.channel, line)
        while True:
            try:
                return answered.result(min(self.deadline.remaining, SLICE_SECONDS))
            except TimeoutError:
                if answered.done():  # by now: well, or with that very error
                    return answered.result()
                self._check()

    def write(self, data: bytes) -> None:
        """A request to a loop. Raises what a broken channel raises, DeadlineError where it is
        not read.
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
        """Both streams had their end from the loop, which then waits."""
        return bool(self.frames) and all(frame.status is not None for frame in self.frames)

    @property
    def begun(self) -> bool:
        """The command may have run; where a loop has ended before, it never did."""
        return not self.frames or any(frame.begun for frame in self.frames)

    def wait(self) -> None:
        """Until the end: `status` is then set, negative where none came. Raises DeadlineError."""
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
        """Raise what the source of standard input or who takes the output raised."""
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
        """Until both marks came, or the loop itself has ended."""
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
    """Writes whole chunks to a channel, and no further once the deadline is over."""

    def __init__(self, channel: paramiko.Channel, deadline: Deadline) -> None:
        self._channel = channel
        self.deadline = deadline

    def __call__(self, chunk: bytes) -> None:
        view = memoryview(chunk)
        while view:
            if self.deadline.expired:  # a lease that was lost ends it too
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
    """Hand on what comes until it ends, or `take` says that it has."""
    try:
        while chunk := _received(receive, deadline):
            deadline.touch()
            if take(chunk):
                return
    finally:
        if isinstance(take, Framed):
            take.close()


def _received(receive: Callable[[int], bytes], deadline: Deadline) -> bytes:
    """The next chunk; b"" at the end."""
    while True:
        try:
            return receive(_CHUNK)
        except TimeoutError:
            if deadline.expired:
                return b""
        except (OSError, EOFError, paramiko.SSHException):  # also of the word that there is room
            return b""
