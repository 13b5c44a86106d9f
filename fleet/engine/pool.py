"""A bounded pool with one worker for each device. Every error is kept with its device."""

from __future__ import annotations

import sys
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fleet.engine.budget import judged
from fleet.engine.session import Session
from fleet.engine.transfer.context import TransferContext
from fleet.model.errors import (
    ConnectionLostError,
    DeviceError,
    FleetError,
    InputError,
    PreflightError,
    TransportError,
    unforeseen,
)
from fleet.model.events import DeviceDone, Listener
from fleet.model.home import disk_full
from fleet.model.masking import masked

if TYPE_CHECKING:
    from fleet.model.inventory import Host
    from fleet.model.plan import DevicePlan
    from fleet.model.record import Record
    from fleet.transport import Transport

FINE = {"changed", "unchanged", "planned", "ran", "ok"}
NOT_ATTEMPTED = "not attempted"
MANY = 8  # devices at a time: from here on memory counts
MOST_HEAPS = 2  # 100 boards in 44 MiB where 16 heaps took 49, and no slower
_M_ARENA_MAX = -8  # mallopt(3): glibc gives each thread a heap of its own, which only grows


Value = TypeVar("Value")


@dataclass
class DeviceResult(Generic[Value]):
    """The result of the work on one device.

    `value` is what the work learned about the device, such as its `Facts`. It is None if the work
    failed first, or learns nothing. `outcome` is as in DeviceDone. `bytes_sent` is the payload,
    `bytes_relayed` is what neighbours sent. `wave` is the device's wave of a rollout, or "".
    """

    host: Host
    outcome: str = "failed"
    text: str = ""
    plan: DevicePlan | None = None
    records: list[Record] = field(default_factory=list)
    value: Value | None = None
    error: FleetError | None = None
    seconds: float = 0.0
    round_trips: int = 0
    bytes_sent: int = 0
    wave: str = ""
    bytes_relayed: int = 0

    @property
    def fine(self) -> bool:
        """True if the outcome of the device is a success."""
        return self.outcome in FINE

    @property
    def answer(self) -> Value:
        """The value. Raises the error of the device if there is none."""
        if self.value is not None:
            return self.value
        raise self.error or DeviceError(
            f"the device gave no answer: {self.text or self.outcome}", device=self.host.name
        )


Work = Callable[[Session, DeviceResult[Value]], None]


class Remote(Executor):
    """An executor whose workers are other processes, possibly near the boards.

    Sessions, closures and listeners cannot be sent to them, so the executor spreads the work
    itself.
    """

    @abstractmethod
    def everywhere(
        self,
        hosts: Sequence[Host],
        work: Work[Value],
        listener: Listener,
        options: PoolOptions[Value],
    ) -> list[DeviceResult[Value]]:
        """Run `work` for each host, with `admit` and `done` of the options.

        `work` is a method of Operation, or a function of a module.
        """


@dataclass(frozen=True, kw_only=True)
class PoolOptions(Generic[Value]):
    """The options of the pool.

    `parallel` is the number of devices at a time. `accept_new` pins the host key of a device that
    has none yet. `executor` replaces the threads by any Executor of this process, or by a Remote,
    which has its own `parallel` and no pinning. All uploads share `transfer`. `begun` has
    connections by host name that may be open already.

    The calling thread calls the other three. `admit` is called before each host, and a host that it
    refuses is not attempted. `done` is called with each result. `meanwhile` is called once, while
    the first devices connect.
    """

    parallel: int = 16
    accept_new: bool = False
    executor: Executor | None = None
    transfer: TransferContext | None = None
    begun: Mapping[str, Transport] = field(default_factory=dict)
    admit: Callable[[Host], bool] | None = None
    done: Callable[[DeviceResult[Value]], None] | None = None
    meanwhile: Callable[[], object] | None = None


def _threads(count: int) -> ThreadPoolExecutor:
    if count >= MANY:
        few_heaps()
    return ThreadPoolExecutor(max_workers=count)


def on_every_device(
    hosts: Sequence[Host],
    work: Work[Value],
    listener: Listener,
    options: PoolOptions[Value] | None = None,
) -> list[DeviceResult[Value]]:
    """Run `work` for each host; results come in the order of `hosts`.

    One broken device ends only its own work: its result has the error.
    """
    options = options or PoolOptions()
    if isinstance(options.executor, Remote):
        _refuse_pinning(accept_new=options.accept_new)
        return options.executor.everywhere(hosts, work, listener, options)
    room = max(1, min(options.parallel, len(hosts)))
    pool, results = options.executor or _threads(room), dict[str, DeviceResult[Value]]()
    transfer = options.transfer or TransferContext()
    waiting, pending = deque(hosts), dict[Future[DeviceResult[Value]], Session]()
    meanwhile = options.meanwhile
    try:
        while waiting or pending:
            while waiting and len(pending) < room:
                host = waiting.popleft()
                if options.admit is not None and not options.admit(host):
                    results[host.name] = DeviceResult(host, NOT_ATTEMPTED)
                    continue
                session = Session(
                    host,
                    listener,
                    accept_new=options.accept_new,
                    transfer=transfer,
                    transport=options.begun.get(host.name),
                )
                pending[pool.submit(guarded, session, work)] = session
            if meanwhile is not None:
                meanwhile()
                meanwhile = None
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                host = pending.pop(future).host
                results[host.name] = future.result()
                if options.done is not None:
                    options.done(results[host.name])
    except BaseException:
        _abandon(pool, pending.values())
        raise
    if options.executor is None:
        pool.shutdown()
    return [results[host.name] for host in hosts]


def _abandon(pool: Executor, sessions: Iterable[Session]) -> None:
    pool.shutdown(wait=False, cancel_futures=True)
    for session in sessions:
        session.cancel()


def _refuse_pinning(*, accept_new: bool) -> None:
    if accept_new:
        raise InputError(
            "--accept-new does not work with --executor, because workers do not store host keys",
            hint="fleet trust all (before the deploy); or write `host_key:` in the inventory",
        )


def guarded(session: Session, work: Work[Value]) -> DeviceResult[Value]:
    """Open the session, do the work and close the session, with any error in the result.

    Emits a DeviceDone at the end.
    """
    result = DeviceResult[Value](session.host)
    started = time.monotonic()
    try:
        session.open()
        work(session, result)
    except FleetError as error:
        if isinstance(error, ConnectionLostError):
            session.tell_apart(error)
        note(result, judged(session.host, session.transport, error))
    except Exception as error:  # noqa: BLE001 - the border between devices
        note(result, disk_full(error) or unforeseen(error))
    finally:
        session.close()
    result.text = masked(result.text)
    result.round_trips = session.traffic.round_trips
    result.bytes_sent = session.payload_bytes
    result.bytes_relayed = session.relayed_bytes
    result.seconds = time.monotonic() - started
    session.emit(done_event(result))
    return result


def note(result: DeviceResult[Any], error: FleetError) -> None:
    """Put an error into a result and set the outcome that belongs to it."""
    error.device = error.device or result.host.name
    result.error = error
    result.text = error.message
    if isinstance(error, PreflightError):
        result.outcome = "refused"
    elif isinstance(error, TransportError):
        result.outcome = "unreachable"
    else:
        result.outcome = "failed"


def done_event(result: DeviceResult[Any]) -> DeviceDone:
    """Return the event that ends the work on a device."""
    return DeviceDone(
        host=result.host.name,
        outcome=result.outcome,
        text=result.text,
        hint=(result.error.hint or result.error.cure) if result.error else "",
        seconds=round(result.seconds, 3),
        round_trips=result.round_trips,
        bytes_sent=result.bytes_sent,
        bytes_relayed=result.bytes_relayed,
        emulated=bool(result.plan and result.plan.facts.emulated),
    )


def few_heaps() -> bool:
    """Let the threads of this process share heaps. Returns False if the C library cannot."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes  # noqa: PLC0415 - 4 ms, for many devices only

    try:
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, MOST_HEAPS))
    except (OSError, AttributeError):
        return False
