"""One worker a device, a bounded pool, every error kept with its device."""

from __future__ import annotations

import sys
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from fleet.engine.session import Session
from fleet.engine.transfer.context import TransferContext
from fleet.model.errors import (
    ConnectionLostError,
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


@dataclass
class DeviceResult:
    """What became of one device. `outcome` is as in DeviceDone; `bytes_sent` is payload,
    `bytes_relayed` what neighbours sent.

    `wave` is the wave of a rollout that it is in, "" outside of one.
    """

    host: Host
    outcome: str = "failed"
    text: str = ""
    plan: DevicePlan | None = None
    records: list[Record] = field(default_factory=list)
    details: dict[str, object] = field(default_factory=dict)
    error: FleetError | None = None
    seconds: float = 0.0
    round_trips: int = 0
    bytes_sent: int = 0
    wave: str = ""
    bytes_relayed: int = 0

    @property
    def fine(self) -> bool:
        """True when nothing is wrong with this device."""
        return self.outcome in FINE


Work = Callable[[Session, DeviceResult], None]


class Remote(Executor):
    """An executor whose workers are other processes, maybe near the boards.

    Sessions, closures and listeners do not go there, so it spreads the work itself.
    """

    @abstractmethod
    def everywhere(
        self,
        hosts: Sequence[Host],
        work: Work,
        listener: Listener,
        *,
        admit: Callable[[Host], bool] | None = None,
        done: Callable[[DeviceResult], None] | None = None,
    ) -> list[DeviceResult]:
        """As on_every_device. `work` is a method of Operation, or a function of a module.

        `admit` is asked for each host before it is handed out; one that it refuses is `not
        attempted`. `done` hears each result. Both are called by the calling thread.
        """


def _threads(count: int) -> ThreadPoolExecutor:
    if count >= MANY:
        few_heaps()
    return ThreadPoolExecutor(max_workers=count)


def on_every_device(
    hosts: Sequence[Host],
    work: Work,
    listener: Listener,
    *,
    parallel: int,
    accept_new: bool = False,
    executor: Executor | None = None,
    admit: Callable[[Host], bool] | None = None,
    done: Callable[[DeviceResult], None] | None = None,
    transfer: TransferContext | None = None,
    meanwhile: Callable[[], object] | None = None,
    begun: Mapping[str, Transport] | None = None,
) -> list[DeviceResult]:
    """Run `work` for each host; results come in the order of `hosts`.

    One broken device ends only its own work. `executor` replaces the threads: any Executor of this
    process, or a Remote, with its own `parallel` and without pinning. Uploads share `transfer`;
    `begun` may be open. The calling thread asks `admit` before each host (who is refused is not
    attempted), tells `done` each result, and calls `meanwhile` once.
    """
    if isinstance(executor, Remote):
        _refuse_pinning(accept_new=accept_new)
        return executor.everywhere(hosts, work, listener, admit=admit, done=done)
    room, shared = max(1, min(parallel, len(hosts))), transfer or TransferContext()
    pool, waiting, results = executor or _threads(room), deque(hosts), {}
    made = partial(_begin, pool, work, listener, begun, accept_new=accept_new, transfer=shared)
    pending: dict[Future[DeviceResult], Session] = {}
    try:
        while waiting or pending:
            while waiting and len(pending) < room:
                host = waiting.popleft()
                if admit is not None and not admit(host):
                    results[host.name] = DeviceResult(host, NOT_ATTEMPTED)
                    continue
                pending.update([made(host)])
            if meanwhile is not None:
                meanwhile()
                meanwhile = None
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                host = pending.pop(future).host
                results[host.name] = future.result()
                if done is not None:
                    done(results[host.name])
    except BaseException:
        _abandon(pool, pending.values())
        raise
    if executor is None:
        pool.shutdown()
    return [results[host.name] for host in hosts]


def _begin(
    pool: Executor,
    work: Work,
    listener: Listener,
    begun: Mapping[str, Transport] | None,
    host: Host,
    *,
    accept_new: bool,
    transfer: TransferContext,
) -> tuple[Future[DeviceResult], Session]:
    link = (begun or {}).get(host.name)
    session = Session(host, listener, accept_new=accept_new, transfer=transfer, transport=link)
    return pool.submit(guarded, session, work), session


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


def guarded(session: Session, work: Work) -> DeviceResult:
    """Open, work, close; what goes wrong is in the result. Ends with a DeviceDone."""
    result = DeviceResult(session.host)
    started = time.monotonic()
    try:
        session.open()
        work(session, result)
    except FleetError as error:
        if isinstance(error, ConnectionLostError):
            session.tell_apart(error)
        note(result, error)
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


def note(result: DeviceResult, error: FleetError) -> None:
    """Put an error into a result, with the outcome that it means."""
    error.device = error.device or result.host.name
    result.error = error
    result.text = error.message
    if isinstance(error, PreflightError):
        result.outcome = "refused"
    elif isinstance(error, TransportError):
        result.outcome = "unreachable"
    else:
        result.outcome = "failed"


def done_event(result: DeviceResult) -> DeviceDone:
    """The event that ends the work on a device."""
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
    """Let the threads of this process share heaps. False where the C library cannot."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes  # noqa: PLC0415 - 4 ms, for many devices only

    try:
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, MOST_HEAPS))
    except (OSError, AttributeError):
        return False
