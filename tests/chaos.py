"""A link that misbehaves on purpose: a TCP proxy on loopback with a script of faults.

Latency, rates, a cut after an exact number of bytes by RST or FIN, a black hole, refusal, and
all well again. Threads and blocking sockets, so that nothing of it depends on an event loop.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import termios
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from fleet.model.inventory import Host

CHUNK = 1 << 16
ON_THE_WAY = 32 << 20  # bytes that a slow line holds where no rate says what fits
DRAIN_SECONDS = 10.0
LOOK_SECONDS = 0.2  # a thread that waits in the kernel keeps a closed socket from its reset
RCVBUF = 1 << 17  # of a line with a rate: what waits before it is small, as at a real port
_NO_LINGER = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Fault:
    """What befalls one connection. Without any value it lives untouched.

    `cut`, `cut_back`: bytes towards the device, or from it, after which `how` happens to the
    whole connection: `rst` and `fin` end both sides, `hole` swallows all that follows and
    says nothing. `latency` is seconds one way, for both ways; `rate`, `rate_back` bytes/s.
    `refuse` resets the connection before a byte.
    """

    cut: int | None = None
    cut_back: int | None = None
    how: Literal["rst", "fin", "hole"] = "rst"
    latency: float = 0.0
    rate: float | None = None
    rate_back: float | None = None
    refuse: bool = False


class Pace:
    """When bytes of one direction arrive. Pure arithmetic: the time comes from the caller."""

    def __init__(self, rate: float | None, latency: float) -> None:
        self._rate = rate
        self._latency = latency
        self._free = 0.0

    def due(self, now: float, size: int) -> float:
        """When `size` bytes that came at `now` are there; the line is busy until then."""
        self._free = max(now, self._free) + (size / self._rate if self._rate else 0.0)
        return self._free + self._latency

    @property
    def piece(self) -> int:
        """Bytes to take at once: 10 ms of the rate, so that a slow line flows."""
        return CHUNK if self._rate is None else min(CHUNK, max(1, int(self._rate / 100)))

    @property
    def holds(self) -> int:
        """Bytes that are on the way at most."""
        if self._rate is None:
            return ON_THE_WAY
        return int(self._rate * self._latency) + 4 * self.piece

    @property
    def idle(self) -> bool:
        """True where bytes go on as they come."""
        return self._rate is None and not self._latency


@dataclass
class Tally:
    """Bytes of one connection that were handed on, and how it ended."""

    sent: int = 0
    received: int = 0
    held: int = 0  # towards the device, on the way
    cut: bool = False


@dataclass
class _Wire:
    """Both sockets of a connection and what is to befall it."""

    near: socket.socket
    far: socket.socket
    fault: Fault
    tally: Tally
    back: _Way | None = None
    gone: threading.Event = field(default_factory=threading.Event)
    hole: threading.Event = field(default_factory=threading.Event)


class Chaos:
    """Forwards 127.0.0.1:`port` to a port of a device.

    `script`: one Fault for each connection in turn; a plain number cuts after so many bytes
    towards the device; None, and every connection after the script, lives (as `then` says).
    `sent` and `received` count bytes over all connections, `cuts` the connections that were
    cut by their script, `connections` those that came.
    """

    def __init__(
        self, target: int, script: Iterable[Fault | int | None] = (), then: Fault | None = None
    ) -> None:
        self._target = target
        self._script = deque(_fault(one) for one in script)
        self._then = then or Fault()
        self._listener = _listener()
        self.port = int(self._listener.getsockname()[1])
        self.tallies: list[Tally] = []
        self._wires: list[_Wire] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        _thread(self._serve)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()

    @property
    def sent(self) -> int:
        """Bytes towards the device."""
        return sum(one.sent for one in self.tallies)

    @property
    def received(self) -> int:
        """Bytes from the device."""
        return sum(one.received for one in self.tallies)

    @property
    def pending(self) -> int:
        """Bytes towards the device that came here and were not handed on yet."""
        return sum(_unread(one.near) + one.tally.held for one in self._living())

    @property
    def cuts(self) -> int:
        """Connections that ended by their script."""
        return sum(one.cut for one in self.tallies)

    @property
    def connections(self) -> int:
        """Connections that were taken."""
        return len(self.tallies)

    def through(self, host: Host, folder: Path) -> Host:
        """The same host behind this link, its key pinned for the new port."""
        pins = folder / f"pins-{self.port}"
        assert host.known_hosts is not None
        text = host.known_hosts.read_text("utf-8")
        pins.write_text(text.replace(f":{host.port} ", f":{self.port} "), "utf-8")
        return replace(host, port=self.port, known_hosts=pins)

    def plug_into(self, target: int) -> None:
        """Lead to another device from now on; what is connected breaks."""
        self._target = target
        self.cut_all()

    def cut_all(self) -> None:
        """Reset every connection that lives."""
        for wire in self._living():
            _reset(wire)

    def cut_back_after(self, count: int) -> None:
        """Cut what is connected after so many more bytes from the device."""
        for wire in self._living():
            if wire.back is not None:
                wire.back.cut_after(count)

    def swallow(self) -> None:
        """From now on a black hole, for what is connected and for what comes."""
        self._then = Fault(cut=0, cut_back=0, how="hole")
        self._script.clear()
        for wire in self._living():
            wire.hole.set()

    def refuse(self) -> None:
        """Connections are refused from now on, as by a machine without a server."""
        self._listener.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        """New connections live. What was swallowed stays lost."""
        self._script.clear()
        self._then = Fault()
        self._listener.listen()
        _thread(self._serve)

    def _living(self) -> list[_Wire]:
        with self._lock:
            self._wires = [one for one in self._wires if not one.gone.is_set()]
            return list(self._wires)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                fault = self._script.popleft() if self._script else self._then
                try:
                    far = socket.create_connection(("127.0.0.1", self._target), 10)
                except OSError:
                    _abort(near)
                    continue
                self._join(_Wire(near, far, fault, Tally()))

    def _join(self, wire: _Wire) -> None:
        for one in (wire.near, wire.far):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.settimeout(LOOK_SECONDS)
        fault = wire.fault
        with self._lock:
            self.tallies.append(wire.tally)
            self._wires.append(wire)
        if fault.refuse:
            wire.tally.cut = True
            _reset(wire)
            return
        if fault.rate:
            wire.near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RCVBUF)
        if fault.rate_back:
            wire.far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RCVBUF)
        wire.back = _Way(wire, Pace(fault.rate_back, fault.latency), fault.cut_back, towards=False)
        _thread(_Way(wire, Pace(fault.rate, fault.latency), fault.cut, towards=True).run)
        _thread(wire.back.run)


class _Way:
    """One direction of a connection."""

    def __init__(self, wire: _Wire, pace: Pace, left: int | None, *, towards: bool) -> None:
        self._wire = wire
        self._pace = pace
        self._left = left
        self._counting = threading.Lock()
        self._towards = towards
        self._source, self._sink = wire.near, wire.far
        if not towards:
            self._source, self._sink = wire.far, wire.near
        self._queue: deque[tuple[float, bytes]] = deque()
        self._held = 0
        self._change = threading.Condition()

    def cut_after(self, count: int) -> None:
        """Bytes that are on the way do not count."""
        with self._counting:
            self._left = count

    def run(self) -> None:
        """Until an end, a fault, or the close of the proxy."""
        if not self._pace.idle:
            _thread(self._deliver)
        if self._left == 0:
            self._befall()
        while not self._wire.gone.is_set():
            try:
                data = self._source.recv(self._pace.piece)
            except TimeoutError:
                continue
            except OSError:
                _reset(self._wire)
                return
            if not data and self._wire.gone.is_set():  # the end of a reset is no FIN
                return
            if self._towards:
                self._wire.tally.held += len(data)
            if self._pace.idle:
                self._hand_on(data)
            else:
                self._put(data)
            if not data:
                return

    def _put(self, data: bytes) -> None:
        with self._change:
            while self._held > self._pace.holds and not self._wire.gone.is_set():
                self._change.wait(0.1)
            self._held += len(data)
            self._queue.append((self._pace.due(time.monotonic(), len(data)), data))
            self._change.notify_all()

    def _deliver(self) -> None:
        while not self._wire.gone.is_set():
            with self._change:
                if not self._queue:
                    self._change.wait(0.1)
                    continue
                due, data = self._queue[0]
            if self._wire.gone.wait(max(0.0, due - time.monotonic())):
                return
            with self._change:
                self._queue.popleft()
                self._held -= len(data)
                self._change.notify_all()
            self._hand_on(data)
            if not data:
                return

    def _hand_on(self, data: bytes) -> None:
        """Bytes to the other side; none: its half of the connection ends."""
        if self._wire.hole.is_set():
            return
        with self._counting:
            try:
                if not data:
                    self._sink.shutdown(socket.SHUT_WR)
                    return
                data = data if self._left is None else data[: self._left]
                self._send(data)
            except OSError:
                _reset(self._wire)
                return
            tally = self._wire.tally
            if self._towards:
                tally.sent += len(data)
                tally.held -= len(data)
            else:
                tally.received += len(data)
            if self._left is not None:
                self._left -= len(data)
            over = self._left == 0
        if over:
            self._befall()

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._sink.send(view) :]
            except TimeoutError:
                if self._wire.gone.is_set():
                    raise

    def _befall(self) -> None:
        wire = self._wire
        wire.tally.cut = True
        if wire.fault.how == "hole":
            wire.hole.set()
            return
        _drain(self._sink)  # a reset would throw away what the kernel has not sent yet
        if wire.fault.how == "rst":
            _reset(wire)
            return
        wire.hole.set()
        for one in (wire.near, wire.far):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_WR)


def _listener() -> socket.socket:
    """Bound by number: the kernel takes a port that it chose away when the listening ends."""
    with socket.socket() as probe, contextlib.ExitStack() as stack:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        found = stack.enter_context(socket.socket())
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(probe.getsockname())
        stack.pop_all()
    found.listen(64)
    return found


def _fault(one: Fault | int | None) -> Fault:
    if isinstance(one, Fault):
        return one
    return Fault(cut=one)


def _thread(target: object) -> None:
    threading.Thread(target=target, daemon=True).start()  # type: ignore[arg-type]


def _unread(one: socket.socket) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(struct.unpack("i", fcntl.ioctl(one, termios.FIONREAD, b"\0" * 4))[0])
    return 0


def _drain(one: socket.socket) -> None:
    """Until the other side's kernel has acknowledged all that was written."""
    end = time.monotonic() + DRAIN_SECONDS
    with contextlib.suppress(OSError, ValueError):
        while time.monotonic() < end:
            (waiting,) = struct.unpack("i", fcntl.ioctl(one, termios.TIOCOUTQ, b"\0" * 4))
            if not waiting:
                return
            time.sleep(0.0005)


def _reset(wire: _Wire) -> None:
    """RST to both sides."""
    if wire.gone.is_set():
        return
    wire.gone.set()
    for one in (wire.near, wire.far):
        _abort(one)


def _abort(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RD)  # wakes a recv of another thread, and sends no FIN
    with contextlib.suppress(OSError):
        one.close()
