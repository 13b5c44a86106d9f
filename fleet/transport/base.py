"""The seam between fleet and a device: a deadline on each method that talks to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypedDict, Unpack

from fleet.model.command import Command, Result
from fleet.model.deadline import Deadline
from fleet.model.files import Chunk

Output = Callable[[bytes], None]
WORTH_BYTES = 32 << 20  # below, the second connection costs more than it saves


class Streams(TypedDict, total=False):
    """What a command reads, and who gets what it prints; see Carrier.run."""

    stdin: Iterable[Chunk]
    on_stdout: Output | None
    on_stderr: Output | None


@dataclass
class Traffic:
    """What went over a transport. `round_trips` counts commands; bytes are payload bytes.

    `bytes_sent` is standard input, `bytes_received` standard output and error; the
    transport's own protocol is not counted.
    """

    round_trips: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    _lock: threading.Lock = field(
        default_factory=threading.Lock, init=False, repr=False, compare=False
    )

    def add(self, *, round_trips: int = 0, sent: int = 0, received: int = 0) -> None:
        """Count; from any thread."""
        with self._lock:
            self.round_trips += round_trips
            self.bytes_sent += sent
            self.bytes_received += received


@dataclass(frozen=True)
class Identity:
    """Who answered. `kind` is host-key, adb or local; `value` the fingerprint, the serial number
    (behind it the USB path, which changes with the socket), or the machine's name.
    """

    kind: str
    value: str

    def same(self, other: Identity) -> bool:
        """True for the same device, whatever socket it hangs on."""
        mine, theirs = (identity.value.partition(" ")[0] for identity in (self, other))
        return (self.kind, mine) == (other.kind, theirs)


class Carrier(Protocol):
    """What moves bulk data: the transport itself, or a second connection beside it.

    `name` is paramiko, ssh (the system's client), adb or local.
    """

    name: str

    def run(self, command: Command, deadline: Deadline, **streams: Unpack[Streams]) -> Result:
        """Run to the end: one round trip. An exit status that is not 0 is no exception.

        `stdin` is sent in order, then closed; the command may answer while it is sent.
        With `on_stdout` / `on_stderr` the chunks go there as they come and the Result
        holds none of them. What goes over a second connection counts for the transport's
        traffic.
        """
        ...

    def trial(self) -> Carrier:
        """What a short stream before the one that matters goes over: itself, or a way beside it
        that leaves to that what is ready.
        """
        ...

    def close(self) -> None:
        """Let go of everything; never raises. The device's processes of ours end."""
        ...


class PortStream(Protocol):
    """A connection to a port of the device. Sending and receiving may be two threads' work."""

    def recv(self, size: int) -> bytes:
        """What has come, b"" at the end. Raises OSError when it broke."""
        ...

    def sendall(self, data: bytes) -> object:
        """All of it. Raises OSError when it broke."""
        ...

    def shutdown(self, how: int) -> object:
        """As of a socket."""
        ...

    def close(self) -> object:
        """Let go of it, from any thread."""
        ...


class Transport(Carrier, Protocol):
    """A connection to one device. Opened and used by one thread.

    Exceptions: `run` and `dial` may be called by other threads while the connection is open
    (each call has its own channel), and `close` by any thread; calls under way then fail.

    Every method may raise a TransportError: UnreachableError (open), AuthError and
    HostKeyError (open), ConnectionLostError, DeadlineError.
    """

    traffic: Traffic

    @property
    def system(self) -> str:
        """`posix` (a shell is there) or `windows`; of an ssh connection once it is open."""
        ...

    @property
    def second(self) -> str:
        """Name of the carrier that can be opened beside this connection, "" when there is none."""
        ...

    def carrier(self, deadline: Deadline) -> Carrier:
        """Open it, from any thread, also while `open` is under way; the caller closes it.

        Raises a TransportError.
        """
        ...

    @property
    def describe(self) -> str:
        """How the device is reached, for people: `ssh ubuntu@10.0.0.7:22`."""
        ...

    def open(self, deadline: Deadline) -> None:
        """Connect and check the identity. Opening twice does nothing."""
        ...

    def identity(self, deadline: Deadline) -> Identity:
        """Who answered on the open connection."""
        ...

    def dial(self, port: int, deadline: Deadline) -> PortStream:
        """A connection to a port of the device's own loopback, as a program there would make.

        Raises DeviceError where nothing listens there, or the device forbids forwarding.
        """
        ...

    def terminal(self, folder: Path, command: str = "") -> list[str]:
        """The argv of a program that opens a terminal the way of the open connection, to the
        same device. What it reads is written to `folder`; no secret stands in either. `command`
        is text for the login's shell to run in the terminal instead of itself.
        """
        ...
