"""The interface of transports. Each method that talks to a device has a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypedDict, Unpack

from fleet.model.command import Command, Result
from fleet.model.deadline import Deadline
from fleet.model.errors import UnreachableError
from fleet.model.files import Chunk

Output = Callable[[bytes], None]
WORTH_BYTES = 32 << 20  # below this size the second connection costs more than it saves


class Streams(TypedDict, total=False):
    """The input of a command and the receivers of its output; see Carrier.run."""

    stdin: Iterable[Chunk]
    on_stdout: Output | None
    on_stderr: Output | None


@dataclass
class Traffic:
    """Counters of a transport. `round_trips` counts commands; bytes are payload bytes.

    `bytes_sent` is standard input, `bytes_received` standard output and error. The transport's own
    protocol is not counted.
    """

    round_trips: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    _lock: threading.Lock = field(
        default_factory=threading.Lock, init=False, repr=False, compare=False
    )

    def add(self, *, round_trips: int = 0, sent: int = 0, received: int = 0) -> None:
        """Add to the counters, from any thread."""
        with self._lock:
            self.round_trips += round_trips
            self.bytes_sent += sent
            self.bytes_received += received


@dataclass(frozen=True)
class Identity:
    """The identity of the device that answered. `kind` is host-key, adb or local.

    `value` is the fingerprint, the serial number with the USB path (which changes with the socket),
    or the machine's name.
    """

    kind: str
    value: str

    def same(self, other: Identity) -> bool:
        """Return True for the same device, even at another USB socket."""
        mine, theirs = (identity.value.partition(" ")[0] for identity in (self, other))
        return (self.kind, mine) == (other.kind, theirs)


class Carrier(Protocol):
    """A channel for bulk data: the transport itself, or a second connection next to it.

    `name` is paramiko, ssh (the system's client), adb or local.
    """

    name: str

    def run(self, command: Command, deadline: Deadline, **streams: Unpack[Streams]) -> Result:
        """Run a command to its end, in one round trip. An exit status other than 0 raises nothing.

        `stdin` is sent in order and then closed; the command may answer while it is sent. With
        `on_stdout` and `on_stderr` the chunks go there as they arrive, and the Result does not
        contain them. The traffic of a second connection counts for the transport.
        """
        ...

    def trial(self) -> Carrier:
        """Return a carrier for a short stream that precedes the main one.

        It is the carrier itself, or another session that does not use up the prepared one.
        """
        return self

    def close(self) -> None:
        """Close everything and end fleet's processes on the device. Never raises."""
        ...


class PortStream(Protocol):
    """A connection to a port of the device. One thread may send while another receives."""

    def recv(self, size: int) -> bytes:
        """Return the bytes that have arrived, b"" at the end.

        Raises OSError if the connection broke.
        """
        ...

    def sendall(self, data: bytes) -> object:
        """Send all of the data. Raises OSError if the connection broke."""
        ...

    def shutdown(self, how: int) -> object:
        """Shut down one or both directions, like socket.shutdown."""
        ...

    def close(self) -> object:
        """Close the connection, from any thread."""
        ...


class Transport(Carrier, Protocol):
    """A connection to one device, opened and used by one thread.

    Other threads may call `run` and `dial` while the connection is open (each call has its own
    channel), and `close` at any time; running calls then fail. Every method may raise a
    TransportError: UnreachableError (open), AuthError and HostKeyError (open), ConnectionLostError,
    DeadlineError.
    """

    traffic: Traffic

    @property
    def system(self) -> str:
        """`posix` (the device has a shell) or `windows`. Over ssh it is known after `open`."""
        ...

    @property
    def second(self) -> str:
        """The name of the carrier that can be opened next to this connection, "" if there
        is none.
        """
        ...

    def expect_carrier(self) -> None:
        """Begin to open the second carrier, if there is one; `carrier` waits for it."""
        return

    def carrier(self, deadline: Deadline) -> Carrier:  # noqa: ARG002 - of those that have one
        """Open the second carrier, from any thread, even during `open`. The caller closes it.

        Raises a TransportError.
        """
        raise UnreachableError(f"{self.name} has no second connection")

    @property
    def describe(self) -> str:
        """The address of the device for people: `ssh ubuntu@10.0.0.7:22`."""
        ...

    def open(self, deadline: Deadline) -> None:
        """Connect and check the identity. A second call does nothing."""
        ...

    def identity(self, deadline: Deadline) -> Identity:
        """Return the identity of the device on the open connection."""
        ...

    def dial(self, port: int, deadline: Deadline) -> PortStream:
        """Connect to a port of the device's own loopback, as a program on the device would.

        Raises DeviceError if nothing listens there or the device forbids forwarding.
        """
        ...

    def terminal(self, folder: Path, command: str = "") -> list[str]:
        """Return the argv of a program that opens a terminal on the same device, the same way.

        Its configuration is written to `folder`. Neither contains a secret. `command` is text that
        the login shell runs in the terminal.
        """
        ...
