"""Limits: bytes per second for all devices together, and parallel devices behind one hub."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from fleet.config.tune import RATE
from fleet.model.errors import InputError
from fleet.model.files import Chunk
from fleet.model.inventory import Host

_SCALE = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_BURST_SECONDS = 0.25


def parse_rate(text: str) -> float:
    """Return bytes per second from `50MB/s`, `100Mbit/s` or `1Gbit`. Raises InputError."""
    match = re.fullmatch(RATE, text)
    if not match:
        raise InputError(f"'{text}' is not a data rate", hint="write it like 50MB/s or 100Mbit/s")
    return float(match[1]) * _SCALE[match[2]] / (8 if match[3] == "bit" else 1)


class Throttle:
    """A token bucket that all devices share. `rate` is in bytes per second."""

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()
        self._lock = threading.Lock()

    def take(self, count: int) -> None:
        """Wait until `count` more bytes may be sent."""
        with self._lock:
            now = self._clock()
            begin = max(self._free_at, now - _BURST_SECONDS)
            self._free_at = begin + count / self._rate
            wait = self._free_at - now
        if wait > 0:
            self._sleep(wait)

    def feed(self, source: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield the same chunks, limited to the rate."""
        for chunk in source:
            self.take(len(chunk))
            yield chunk


def hub_of(host: Host) -> str:
    """Return the shared cable of a device: the label `hub`, or its USB hub; "" for none.

    `usb:1-4.2` is port 2 of the hub 1-4. A device at the computer itself shares the bus.
    """
    if "hub" in host.labels:
        return host.labels["hub"]
    serial = host.serial or ""
    if not host.phone or not serial.startswith("usb:"):
        return ""
    path = serial.removeprefix("usb:")
    return f"usb:{path.rpartition('.')[0] or path.partition('-')[0]}"


class Hubs:
    """The limit of parallel uploads behind one hub."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._lanes: dict[str, threading.BoundedSemaphore] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def lane(self, host: Host) -> Iterator[None]:
        """Hold one of the hub's places for a transfer; wait if all are taken."""
        hub = hub_of(host)
        if self._limit is None or not hub:
            yield
            return
        with self._lock:
            lane = self._lanes.setdefault(hub, threading.BoundedSemaphore(self._limit))
        with lane:
            yield
