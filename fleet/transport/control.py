"""Commands over one ssh connection: sequential ones share a channel, parallel ones open more."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass

import paramiko

from fleet.model.command import Command
from fleet.model.deadline import Deadline
from fleet.model.errors import DeadlineError
from fleet.model.files import Chunk
from fleet.transport import loop
from fleet.transport.base import Output, Traffic
from fleet.transport.loop import Framed
from fleet.transport.quote import render
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


# Session channels of one ssh connection. On distant links one channel is opened in advance.

FAR_SECONDS = 0.01  # opening a channel is one round trip; nearer links are not worth a thread
# a server with a session limit counts the last session until it has cleaned it up
ENDING_SECONDS = 5.0
AGAIN_SECONDS = 0.05


class Channels:
    """A pool that opens channels for commands. Beyond 50 ms, this saves a command one round
    trip.
    """

    def __init__(self, transport: paramiko.Transport) -> None:
        self.transport = transport
        self._lock = threading.Lock()
        self._early: Future[paramiko.Channel | None] | None = None
        self._far = False
        self._refused = False

    def take(self, seconds: float) -> paramiko.Channel:
        """Return an open channel for one caller. Raises the exceptions of `open_session`."""
        with self._lock:
            early, self._early = self._early, None
        channel = self._opened(early, seconds)
        if channel is None:
            began = time.monotonic()
            channel = self._patiently(seconds)
            self._far = time.monotonic() - began > FAR_SECONDS
        with self._lock:
            if self._far and not self._refused and self._early is None:
                self._early = Future()
                args = (self._early, seconds)
                threading.Thread(target=self._open, args=args, daemon=True).start()
        return channel

    def _patiently(self, seconds: float) -> paramiko.Channel:
        """Open a channel.

        Retry after a refusal, since the server may still be cleaning up a session.
        """
        end = time.monotonic() + min(seconds, ENDING_SECONDS)
        while True:
            try:
                return self.transport.open_session(timeout=seconds)
            except paramiko.ChannelException:
                if time.monotonic() >= end:
                    raise
                time.sleep(AGAIN_SECONDS)

    def _opened(
        self, early: Future[paramiko.Channel | None] | None, seconds: float
    ) -> paramiko.Channel | None:
        try:
            channel = early.result(seconds) if early is not None else None
        except TimeoutError as error:
            raise paramiko.SSHException("Timeout opening channel.") from error
        return None if channel is None or channel.closed else channel

    def _open(self, early: Future[paramiko.Channel | None], seconds: float) -> None:
        """Open a channel in advance, in a thread. A server that allows few sessions
        disables this.
        """
        channel = None
        try:
            channel = self.transport.open_session(timeout=seconds)
        except paramiko.ChannelException:
            self._refused = True
        except (paramiko.SSHException, EOFError, OSError):
            pass
        finally:
            early.set_result(channel)


LONGEST_LINE = 8999  # dropbear: MAX_CMD_LEN in src/sysoptions.h

Begins = Callable[[paramiko.Channel], Exchange]


@dataclass(frozen=True)
class _Control:
    """A channel whose loop waits for its next request."""

    channel: paramiko.Channel
    word: bytes
    number: int

    @property
    def waits(self) -> bool:
        """False if the channel is known to have ended."""
        channel = self.channel
        return not (channel.closed or channel.eof_received or channel.exit_status_ready())


class Commands:
    """A runner of commands. An idle channel is reused; parallel commands open other channels.

    A command with standard input is the last of its channel. A channel is closed if its command
    passed its deadline or its output does not match the loop's frames.
    """

    def __init__(self, transport: paramiko.Transport) -> None:
        self.transport = transport
        self.channels = Channels(transport)
        self._lock = threading.Lock()
        self._idle: _Control | None = None

    def run(
        self, begins: Begins, command: Command, stdin: Iterable[Chunk], deadline: Deadline
    ) -> Exchange:
        """Run a command of a POSIX shell to its end."""
        feeding = stdin or None  # an empty tuple means that there is no input
        control = self._taken()
        if control is not None:
            done = self._further(begins(control.channel), control, command, feeding)
            if done.begun or feeding is not None or not self.transport.is_active():
                return done
        if feeding is not None:
            return self.alone(begins, render(command), feeding, deadline)
        exchange = begins(self.channels.take(deadline.remaining))
        line = loop.line(command)
        far = self.transport.remote_version.partition("dropbear")[1]
        short = not far or len(line.encode("utf-8", "surrogateescape")) <= LONGEST_LINE
        with self._keeping(exchange, int(not short)):
            exchange.begin(line if short else loop.line())
            if not short:
                exchange.write(loop.request(1, command))
            exchange.wait()
        return exchange

    def expect(self, begins: Begins, deadline: Deadline) -> None:
        """Start the shell that waits for the first command. Raises the errors of a broken
        channel.
        """
        exchange = begins(self.channels.take(deadline.remaining))
        kept = False
        try:
            exchange.begin(loop.line())
            kept = self._kept(_Control(exchange.channel, b"", 1))
        finally:
            if not kept:
                exchange.channel.close()

    def alone(
        self, begins: Begins, line: str, stdin: Iterable[Chunk], deadline: Deadline
    ) -> Exchange:
        """Run a line in a channel of its own, which is closed at the end."""
        exchange = begins(self.channels.take(deadline.remaining))
        with contextlib.closing(exchange.channel):
            exchange.begin(line)
            exchange.feed(stdin)
            exchange.wait()
        return exchange

    def _further(
        self,
        exchange: Exchange,
        control: _Control,
        command: Command,
        feeding: Iterable[Chunk] | None,
    ) -> Exchange:
        """Run a command on an idle channel. The result is not `begun` if the loop had ended."""
        last = feeding is not None
        with self._keeping(exchange, control.number, control.word, last=last):
            # the channel is closed; its status shows how it ended
            with contextlib.suppress(OSError):
                exchange.write(loop.request(control.number, command, last=last))
            if feeding is not None:
                exchange.feed(feeding)
            exchange.wait()
        return exchange

    @contextlib.contextmanager
    def _keeping(
        self, exchange: Exchange, number: int, word: bytes = b"", *, last: bool = False
    ) -> Iterator[None]:
        """Keep the channel if the loop's end mark came (never after `last`); else close it."""
        exchange.framed(number, word, last=last)
        kept = False
        try:
            yield
            out, err = exchange.frames
            if exchange.whole and out.word == err.word and not (out.spilled or err.spilled):
                kept = self._kept(_Control(exchange.channel, out.word, number + 1))
        finally:
            if not kept:
                exchange.channel.close()

    def _kept(self, control: _Control) -> bool:
        with self._lock:
            free = self._idle is None
            if free:
                self._idle = control
        return free

    def _taken(self) -> _Control | None:
        with self._lock:
            control, self._idle = self._idle, None
        if control is not None and not control.waits:
            control.channel.close()
            return None
        return control
