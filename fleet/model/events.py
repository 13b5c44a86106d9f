"""What the engine says while it works; renderers subscribe. All of it is plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Event:
    """Root of all events. `host` is the inventory name, "" for the whole run."""

    host: str

    def as_dict(self) -> dict[str, Any]:
        """`{"event": "StepStarted", "host": ..., ...}` for JSON lines."""
        return {"event": type(self).__name__, **asdict(self)}


@dataclass(frozen=True)
class StepStarted(Event):
    """A step begins. `bytes` is its payload, 0 when it sends none."""

    step: str
    text: str
    bytes: int = 0


@dataclass(frozen=True)
class Progress(Event):
    """`done` of `total` payload bytes of a step are sent."""

    step: str
    done: int
    total: int


@dataclass(frozen=True)
class Chosen(Event):
    """The carrier of bulk data (paramiko, ssh, adb), and why it."""

    carrier: str
    why: str


@dataclass(frozen=True)
class Relayed(Event):
    """`bytes` of a blob came from the board `source` instead of this workstation."""

    source: str
    bytes: int


@dataclass(frozen=True)
class Output(Event):
    """Text that a runner printed; `stream` is stdout or stderr."""

    stream: str
    text: str


@dataclass(frozen=True)
class Warned(Event):
    """Something a person should know and that stops nothing."""

    text: str


@dataclass(frozen=True)
class DeviceDone(Event):
    """A device is finished.

    `outcome` is changed, unchanged, planned, refused, failed or unreachable. `round_trips`
    and `bytes_sent` (payload: bytes of blobs) are those of the whole work on this device;
    `bytes_relayed` came from its neighbours.
    """

    outcome: str
    text: str
    hint: str
    seconds: float
    round_trips: int
    bytes_sent: int
    emulated: bool
    bytes_relayed: int = 0


@dataclass(frozen=True)
class RunDone(Event):
    """One run on a device ended; `record` is the record as plain data."""

    record: dict[str, Any]


Listener = Callable[[Event], None]
