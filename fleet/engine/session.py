"""A session with one device: its transport, its deadlines, and a second try after a broken link."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeVar, Unpack

from fleet.device.shell import failed
from fleet.engine.budget import require_time, within
from fleet.engine.transfer.context import TransferContext
from fleet.model.command import Call, Command, Result
from fleet.model.deadline import Deadline, awake_clock
from fleet.model.errors import (
    CancelledError,
    ConnectionLostError,
    FleetError,
    IdentityError,
    TransportError,
)
from fleet.model.events import Chosen, Event, Listener, Warned
from fleet.model.files import Chunk
from fleet.model.inventory import Host
from fleet.transport import Identity, Traffic, Transport, transport_for
from fleet.transport.base import Carrier, Output, Streams

if TYPE_CHECKING:
    from fleet.engine.lease.lease import Lease

T = TypeVar("T")
CONTROL_SECONDS = 60.0  # a control script takes below 1 s; slow flash under load takes more
IDENTITY_SECONDS = 5.0
_BOOT_ID = Command(("cat", "/proc/sys/kernel/random/boot_id"), call=Call("boot_id"))
_HEARD_BYTES = 1 << 16  # a noisy .bashrc speaks before the guard does


class _Closes(Protocol):
    def close(self) -> None: ...


class Session:
    """A host of the inventory with a transport that can be reopened.

    `traffic` adds up over all connections. `payload_bytes` counts the bytes of blobs only, and
    `relayed_bytes` counts those that neighbours sent instead. All methods belong to the thread of
    the device's worker, except `cancel`; the thread of a Lease calls only `transport.run`. The
    parameter `transport` is a connection that may be open already. `lease` is set inside a Lease:
    commands with `mutates` then begin only while the lease holds.
    """

    def __init__(
        self,
        host: Host,
        listener: Listener,
        *,
        accept_new: bool = False,
        transfer: TransferContext | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.host = host
        self.say = listener
        self.transfer = transfer or TransferContext()
        self._accept_new = accept_new
        self.payload_bytes = 0
        self.relayed_bytes = 0
        self._cancelled = False
        self._examined: ConnectionLostError | None = None
        self._who: Identity | None = None
        self.lease: Lease | None = None
        self.boot: str | None = None  # id of the boot that the facts were read in
        self.rebooted = False  # the device did it itself; noticed after a reconnect
        self._past: list[Traffic] = []
        self._beside: list[_Closes] = []
        self.transport: Transport = transport or transport_for(host, accept_new=accept_new)

    def open(self) -> None:
        """Connect within the host's connect_timeout, and open the second carrier if there is much
        to send.

        Raises IdentityError if another device answers than the last time.
        """
        if self.transfer.bulk:
            self.transport.expect_carrier()
        self.transport.open(within(self.host, Deadline(self.host.connect_timeout)))
        who = self.transport.identity(Deadline(IDENTITY_SECONDS))
        if self._who is not None and not who.same(self._who):
            self.close()
            raise IdentityError(
                f"another device now answers at this address: expected {self._who.value}, found "
                f"{who.value}",
                step="identity",
                hint="give each device an address of its own, or write `identity:` of the right "
                "device in the inventory",
            )
        self._who = who

    def reopen(self) -> None:
        """Drop the connection and connect to the same device again.

        Raises IdentityError if another device answers: a second phone may have got the address.
        Raises CancelledError after `cancel`.
        """
        self._require_work()
        with self.lease.reconnecting() if self.lease is not None else contextlib.nullcontext():
            self.close()
            self._past.append(self.transport.traffic)
            self.transport = transport_for(
                self.host, accept_new=self._accept_new, again=self._who is not None
            )
            self.open()
            self._notice_reboot()

    def reading(self, work: Callable[[], T]) -> T:
        """Do work that only reads the device. If the connection breaks, do it once more over a new
        one.

        Work that writes has rules of its own: see Upload.
        """
        try:
            return work()
        except ConnectionLostError as error:
            self.warn(f"{error.message}; fleet connects again")
            self.reopen()
            return work()

    def _notice_reboot(self) -> None:
        """Warn if the boot id of the device has changed, and continue a lease after the reboot."""
        if self.boot is None:
            return
        now = self.boot_id()
        if now not in {"", self.boot}:
            self.boot, self.rebooted = now, True
            self.warn("the device rebooted while fleet was working on it")
            if self.lease is not None:
                self.lease.revive()

    def boot_id(self) -> str:
        """Return the id of the current boot, "" if the device does not state it."""
        lines = self.ask(_BOOT_ID, "boot id", seconds=IDENTITY_SECONDS * 3).text.split()
        return lines[-1] if lines else ""

    def tell_apart(self, error: ConnectionLostError) -> None:
        """State in the error of a broken connection that the device rebooted, if it did.

        Connects once more to find out. If that fails, the error stays as it is. A second call with
        the same error does nothing.
        """
        if self.boot is None or self._cancelled or self._examined is error:
            return
        self._examined = error
        with contextlib.suppress(FleetError):
            self.reopen()
        if self.rebooted:
            error.message = f"the device rebooted: {error.message}"
            error.hint = error.hint or "run the command again: the reboot interrupted it"

    def close(self) -> None:
        """Close the connection."""
        self.transport.close()

    def cancel(self) -> None:
        """Stop the work from another thread: close the connection and refuse a new one.

        Nothing is undone on the device. A release is either old or new at every instant.
        """
        self._cancelled = True
        self.close()
        for connection in list(self._beside):
            connection.close()

    def check(self) -> None:
        """Raise CancelledError, BudgetError or LeaseLostError if no more work may begin."""
        self._require_work()
        require_time(self.host)
        if self.lease is not None:
            self.lease.check()

    def _require_work(self) -> None:
        if self._cancelled:
            raise CancelledError(
                "you stopped the command before it finished", hint="run the same command again"
            )

    @contextlib.contextmanager
    def beside(self, other: _Closes) -> Iterator[None]:
        """Let `cancel` also close this connection while the context is open."""
        self._beside.append(other)
        try:
            yield
        finally:
            self._beside.remove(other)

    @property
    def traffic(self) -> Traffic:
        """The total traffic of this session so far."""
        every = [*self._past, self.transport.traffic]
        return Traffic(
            sum(traffic.round_trips for traffic in every),
            sum(traffic.bytes_sent for traffic in every),
            sum(traffic.bytes_received for traffic in every),
        )

    @property
    def identity(self) -> str:
        """`host-key SHA256:...` of the open connection."""
        who = self.transport.identity(Deadline(IDENTITY_SECONDS))
        return f"{who.kind} {who.value}"

    def run(
        self,
        command: Command,
        step: str,
        *,
        seconds: float = CONTROL_SECONDS,
        mutates: bool = False,
        ends: bool = False,
        deadline: Deadline | None = None,
        via: Carrier | None = None,
        **streams: Unpack[Streams],
    ) -> Result:
        """Run a command whose status the caller judges.

        With `mutates` the command runs under the lease and holds it for up to `seconds`, even if
        this workstation is gone. The lease raises LeaseHeldError and LeaseLostError. With `ends`
        the lease is given back if the command succeeds. `deadline` is for bulk data: the lease then
        ends `seconds` after the last renewal. `via` is another way to the device than the open
        connection.
        """
        link = via or self.transport
        limit = within(self.host, deadline or Deadline(seconds))
        lease = self.lease if mutates else None
        try:
            if lease is None:
                return link.run(command, limit, **streams)
            guarded = lease.guarded(command, 0 if deadline else seconds, ends=ends)
            on_stderr, stdin = streams.get("on_stderr"), streams.get("stdin")
            beginning = Beginning(on_stderr, _HEARD_BYTES)
            began = awake_clock()
            result = link.run(
                guarded,
                limit,
                stdin=lease.feed(stdin) if stdin else (),
                on_stdout=streams.get("on_stdout"),
                on_stderr=beginning.take if on_stderr else None,
            )
        except TransportError as error:
            error.step = error.step or step
            if lease is not None:
                lease.broken()
            raise
        lease.judge(result, beginning.text if on_stderr else result.error_text, began)
        return result

    def ask(
        self,
        command: Command,
        step: str,
        *,
        stdin: Iterable[Chunk] = (),
        seconds: float = CONTROL_SECONDS,
        mutates: bool = False,
    ) -> Result:
        """Run a script as `run` does. Raises DeviceError with its last words if it fails."""
        result = self.run(command, step, stdin=stdin, seconds=seconds, mutates=mutates)
        if not result.ok:
            raise failed(result, step, self.host.name)
        return result

    @contextlib.contextmanager
    def over_reboot(self) -> Iterator[None]:
        """Allow a reboot of the board while the context is open; a lease continues after it."""
        self.boot = None
        with self.lease.over_reboot() if self.lease is not None else contextlib.nullcontext():
            yield

    def chose(self, carrier: str, why: str) -> None:
        """Emit an event with the way that bulk data goes."""
        self.emit(Chosen(self.host.name, carrier, why))

    def emit(self, event: Event) -> None:
        """Send an event to the listener."""
        self.say(event)

    def warn(self, text: str) -> None:
        """Send a warning about this device to the listener."""
        self.emit(Warned(self.host.name, text))


class Beginning:
    """The first `limit` bytes of a stream, which is forwarded whole."""

    def __init__(self, forward: Output | None, limit: int) -> None:
        self._forward, self._limit = forward, limit
        self.kept = bytearray()
        self.began = time.monotonic()

    def take(self, chunk: bytes) -> None:
        """Keep and forward a chunk."""
        self.kept.extend(chunk[: max(0, self._limit - len(self.kept))])
        if self._forward is not None:
            self._forward(chunk)

    @property
    def text(self) -> str:
        """The bytes kept so far, as text."""
        return self.kept.decode("utf-8", "replace")
