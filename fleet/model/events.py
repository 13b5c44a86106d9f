"""The events of the engine, as plain data; renderers subscribe to them.

Fields that may contain a device's text are masked, so that no listener gets a revealed secret.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from msgspec import Struct, structs

from fleet.model.masking import masked_data

_HEARD = {"text", "hint", "why", "record"}  # fields that may contain a device's text


class Event(Struct, frozen=True, tag_field="event", tag=True):
    """Root of all events. `host` is the inventory name, "" for the whole run.

    JSON lines contain the name of the class as `event`.
    """

    host: str

    def __post_init__(self) -> None:
        for name in _HEARD.intersection(self.__struct_fields__):
            structs.force_setattr(self, name, masked_data(getattr(self, name)))


class StepStarted(Event, frozen=True, tag=True):
    """A step begins. `bytes` is its payload, 0 if it sends none."""

    step: str
    text: str
    bytes: int = 0


class Progress(Event, frozen=True, tag=True):
    """`done` of `total` payload bytes of a step are sent."""

    step: str
    done: int
    total: int


class Cooling(Event, frozen=True, tag=True):
    """A run waits until `zone`, now at `celsius` °C, is below `below`, for at most `left`
    seconds.
    """

    zone: str
    celsius: float
    below: float
    left: float


class Chosen(Event, frozen=True, tag=True):
    """The carrier of bulk data (paramiko, ssh, adb), and the reason for the choice."""

    carrier: str
    why: str


class Relayed(Event, frozen=True, tag=True):
    """`bytes` of a blob came from the board `source` instead of this workstation."""

    source: str
    bytes: int


class Output(Event, frozen=True, tag=True):
    """Text that a runner printed; `stream` is stdout or stderr."""

    stream: str
    text: str


class Warned(Event, frozen=True, tag=True):
    """A warning that does not stop the work."""

    text: str


class DeviceDone(Event, frozen=True, tag=True):
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


class DevicePlanned(Event, frozen=True, tag=True):
    """A deploy has decided what to do on a device, and begins.

    `current` is the live release, None if there is none. `kind` decides which release a device
    gets: QAIRT target and Hexagon arch. `boot_id` is "" if unknown.
    """

    release: str
    current: str | None
    kind: str
    boot_id: str


class WaveStarted(Event, frozen=True, tag=True):
    """A wave of a rollout begins with these devices."""

    wave: str
    text: str
    devices: tuple[str, ...]


class Soaking(Event, frozen=True, tag=True):
    """The rollout waits before it checks the devices of a wave again."""

    wave: str
    text: str
    seconds: float


class Looked(Event, frozen=True, tag=True):
    """A device was checked after the soak. `outcome` is ok, failed or unreachable."""

    outcome: str
    text: str


class WaveJudged(Event, frozen=True, tag=True):
    """A wave ended. `verdict` is go, stop or rollback, `text` the reason for the latter two."""

    wave: str
    verdict: str
    text: str


class RolledBack(Event, frozen=True, tag=True):
    """A failed rollout has tried to switch a device back. `outcome` and `text` have the result."""

    outcome: str
    text: str


class RolloutDone(Event, frozen=True, tag=True):
    """The end of a deploy. `ending`: finished, failed, stopped, rolled back, not rolled back.

    `devices` has host, wave, outcome and text of every device, including those that an earlier
    process of the same run finished.
    """

    run_id: str
    ending: str
    text: str
    devices: tuple[dict[str, str], ...]


class RunDone(Event, frozen=True, tag=True):
    """A run on a device ended; `record` is the record as plain data."""

    record: dict[str, Any]


Listener = Callable[[Event], None]


class CallerListener:
    """A listener from outside of fleet. Its first error is logged; no error stops the work."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._reported = threading.Lock()  # acquired with the first error, and kept

    def __call__(self, event: Event) -> None:
        """Pass the event on."""
        try:
            self._listener(event)
        except Exception:
            import logging  # noqa: PLC0415 - imported only for this

            if self._reported.acquire(blocking=False):
                logging.getLogger("fleet").exception(
                    "the listener %r, which the caller of fleet gave, raised an error at a %s of "
                    "%s; the work goes on, and further errors of the listener are not reported",
                    self._listener,
                    type(event).__name__,
                    event.host or "the run",
                )
