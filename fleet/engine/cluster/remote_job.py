"""A piece of work on a cluster, seen from the workstation: its answers and its events."""

from __future__ import annotations

import contextlib
import queue
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fleet.engine.cluster import worker
from fleet.engine.cluster.broadcast import Broadcast, Call
from fleet.engine.cluster.wire import BEAT_SECONDS, TEXT_BYTES, DeviceKind, Order, event_of
from fleet.engine.deploy.operation import Operation
from fleet.engine.pool import Work
from fleet.model.errors import FleetError, InputError, unforeseen
from fleet.model.events import Listener, Output, Progress, Warned
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest
from fleet.profiles.runs import RunStore

SETTLE_SECONDS = 5.0
INBOX_MESSAGES = 1000  # of at most 500 events; a listener that is slower loses progress lines
_THIN = {Progress.__name__, Output.__name__}


class RemoteJob:
    """A job whose threads answer the questions of workers and pass their events to the listener.

    Memory is bounded: a full inbox drops Progress and Output, and a warning tells how many.
    """

    def __init__(
        self, work: Work[Any], hosts: Iterable[Host], call: Call, alive: Callable[[], set[str]]
    ) -> None:
        owner = getattr(work, "__self__", None)
        self.operation = owner if isinstance(owner, Operation) else None
        every = (*self.operation.hosts, *hosts) if self.operation else hosts
        self.order = _order(work, self.operation, every)
        self.runs = self.operation.runs if self.operation else RunStore()
        self.prepared: dict[str, str] = {}  # address → machine
        self.kept: set[str] = set()  # hosts whose files could not be fetched from the worker
        self.flags: set[str] = set()  # flags of boards that were begun and not finished
        self.manifests: dict[str, Manifest] = {}
        self.listener: Listener = lambda _: None
        self.dropped = 0
        self._call, self._alive = call, alive
        self._catalog: dict[str, tuple[int, Path]] = {}
        self._inbox: queue.Queue[dict[str, Any] | None] = queue.Queue(INBOX_MESSAGES)
        self._asks: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._ended = threading.Event()
        self.broadcast = Broadcast(call, self._fail)
        self._threads = [
            _thread(self._listen, "events"),
            _thread(self._serve, "asks"),
            _thread(self._beat, "beat"),
        ]

    @property
    def owed(self) -> frozenset[str]:
        """Names of hosts that may have been switched without a run; see Operation.bring."""
        return self.operation.owed if self.operation else frozenset()

    def take(self, message: dict[str, Any]) -> None:
        """Accept a message of a worker without blocking: the client's event loop calls this."""
        if "ask" in message:
            self._asks.put(message)
            return
        try:
            self._inbox.put_nowait(message)
        except queue.Full:
            self.dropped += len(message["events"])

    def tell(self, function: Callable[..., None], *args: object) -> None:
        """Call a function of `worker` for this order on all living processes that know it."""
        living = sorted(self._alive() & set(self.prepared))
        self._call(living, function, self.order.id, *args)

    def settle(self) -> None:
        """Wait until the listener has got all events that arrived, at most twice SETTLE_SECONDS."""
        delivered = threading.Event()
        with contextlib.suppress(queue.Full):
            self._inbox.put({"told": delivered}, timeout=SETTLE_SECONDS)
            delivered.wait(SETTLE_SECONDS)

    def close(self) -> None:
        """Stop the threads here, and the order on all workers."""
        self._ended.set()
        self._inbox.put(None)
        self._asks.put(None)
        for thread in self._threads:
            thread.join()
        self.broadcast.close()
        if self.dropped:
            self.listener(
                Warned("", f"fleet does not show {self.dropped} progress messages of workers")
            )
        self.tell(worker.end_run, tuple(sorted(self.kept)))

    def _listen(self) -> None:
        while (message := self._inbox.get()) is not None:
            if "told" in message:
                message["told"].set()
                continue
            for data in message["events"]:
                if self._inbox.qsize() > INBOX_MESSAGES // 2 and data["event"] in _THIN:
                    self.dropped += 1
                    continue
                event = event_of(data)
                if event is not None:
                    self.listener(event)

    def _serve(self) -> None:
        while (ask := self._asks.get()) is not None:
            address = str(ask["worker"])
            if ask["ask"] == "kind":
                value = self._kind(str(ask["target"]), ask["arch"], ask["python"])
                self._call([address], worker.answer, self.order.id, str(ask["key"]), value)
            else:
                known = {sha: self._catalog[sha] for sha in ask["blobs"] if sha in self._catalog}
                for sha in set(ask["blobs"]) - set(known):
                    self._fail(
                        {address},
                        sha,
                        FleetError(
                            f"the workstation does not know the file with the SHA-256 {sha[:12]}..."
                        ),
                    )
                self.broadcast.want(address, self.prepared.get(address, address), known)

    def _kind(self, target: str, arch: str | None, python: str | None) -> DeviceKind | FleetError:
        if self.operation is None:
            return InputError("a job without a playbook has no files")
        builder = self.operation.builder
        try:
            parts = builder.parts(target, arch, python)
            manifest, kinds = builder.manifest(parts), builder.kinds(target, arch, python)
            opened, corrected = builder.opened(parts, manifest), builder.corrected(parts)
            kind = DeviceKind(parts, manifest, kinds, opened, corrected)
        except FleetError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a thread that dies would leave workers waiting
            return unforeseen(error)
        self.manifests[kind.manifest.id] = kind.manifest
        self._catalog |= {item.sha256: (item.size, item.source) for item in kind.manifest.files}
        return kind

    def _fail(self, addresses: set[str], key: str, error: FleetError) -> None:
        self._call(list(addresses), worker.answer, self.order.id, key, error)

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            self.tell(worker.beat)


def _thread(target: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True, name=f"fleet-{name}")
    thread.start()
    return thread


def _order(work: Work[Any], operation: Operation | None, hosts: Iterable[Host]) -> Order:
    made = secrets.token_hex(8)
    name = getattr(work, "__name__", "")
    if operation is None:
        module = getattr(work, "__module__", "")
        if getattr(work, "__qualname__", "<locals>") != name:
            raise InputError(
                "a dask cluster can run only functions of fleet, not a function of your own "
                "program",
                hint="run this function without an executor",
            )
        return Order(made, made, f"{module}:{name}", texts=_texts(hosts))
    return Order(
        made,
        operation.run_id,
        name,
        operation.playbook,
        operation.options,
        operation.builder.bundle,
        _texts(hosts),
    )


def _texts(hosts: Iterable[Host]) -> Mapping[Path, bytes]:
    """Return the pins and ssh configs that the hosts name. They are public; keys are never among
    them.

    Raises InputError for a file above TEXT_BYTES.
    """
    paths = {path for host in hosts for path in (host.known_hosts, host.ssh_config) if path}
    texts = {}
    for path in sorted(paths):
        if path.is_file():
            if path.stat().st_size > TEXT_BYTES:
                raise InputError(
                    f"{path} is larger than {TEXT_BYTES} bytes", hint="remove lines from the file"
                )
            texts[path] = path.read_bytes()
    return texts
