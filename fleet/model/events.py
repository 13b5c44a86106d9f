"""What the engine says while it works; renderers subscribe. All of it is plain data.

What may be a device's own words has no revealed secret in it, whoever listens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from fleet.model.masking import masked_data

_HEARD = {"text", "hint", "why", "record"}  # fields that may hold what a device said


@dataclass(frozen=True)
class Event:
    """Root of all events. `host` is the inventory name, "" for the whole run."""

    host: str

    def __post_init__(self) -> None:
        for name in _HEARD & vars(self).keys():
            object.__setattr__(self, name, masked_data(getattr(self, name)))

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
class Cooling(Event):
    """A run waits until `zone`, now at `celsius` °C, is below `below`; `left` seconds at most."""

    zone: str
    celsius: float
    below: float
    left: float


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

    `outcome` is changed, unchanged, planned, refused, failed, unreachable or, in a rollout that
    was stopped, not attempted. `round_trips` and `bytes_sent` (payload: bytes of blobs) are
    those of the whole work on this device; `bytes_relayed` came from its neighbours.
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
class DevicePlanned(Event):
    """A deploy has decided what to do on a device, and begins.

    `current` is the release that is live there, None for none; `kind` is what decides which
    release a device gets: QAIRT target and Hexagon arch. `boot_id` "" where it is unknown.
    """

    release: str
    current: str | None
    kind: str
    boot_id: str


@dataclass(frozen=True)
class WaveStarted(Event):
    """A wave of a rollout begins with these devices."""

    wave: str
    text: str
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Soaking(Event):
    """The rollout waits before it looks at the devices of a wave again."""

    wave: str
    text: str
    seconds: float


@dataclass(frozen=True)
class Looked(Event):
    """A device was looked at after the soak; `outcome` is ok, failed or unreachable."""

    outcome: str
    text: str


@dataclass(frozen=True)
class WaveJudged(Event):
    """A wave ended; `verdict` is go, stop or rollback, `text` the reason where it went badly."""

    wave: str
    verdict: str
    text: str


@dataclass(frozen=True)
class RolledBack(Event):
    """A rollout that failed has switched a device back, or has not; `text` says which."""

    outcome: str
    text: str


@dataclass(frozen=True)
class RolloutDone(Event):
    """The end of a deploy. `ending`: finished, failed, stopped, rolled back, not rolled back.

    `devices` has host, wave, outcome and text of every device, also of those that an earlier
    process of the same run brought to their end.
    """

    run_id: str
    ending: str
    text: str
    devices: tuple[dict[str, str], ...]


@dataclass(frozen=True)
class RunDone(Event):
    """One run on a device ended; `record` is the record as plain data."""

    record: dict[str, Any]


Listener = Callable[[Event], None]


class CallerListener:
    """A listener from outside of fleet: its first error is logged, and none stops the work."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._reported = threading.Lock()  # taken with the first error, and kept

    def __call__(self, event: Event) -> None:
        """Hand the event on."""
        try:
            self._listener(event)
        except Exception:
            import logging  # noqa: PLC0415 - for this alone

            if self._reported.acquire(blocking=False):
                logging.getLogger("fleet").exception(
                    "the listener %r, which the caller of fleet gave, raised an error at a %s of "
                    "%s; the work goes on, and further errors of the listener are not reported",
                    self._listener,
                    type(event).__name__,
                    event.host or "the run",
                )
