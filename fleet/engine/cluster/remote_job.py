"""A piece of work on a cluster, seen from the workstation: its answers and its events."""

from __future__ import annotations

import contextlib
import queue
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.engine.cluster import worker
from fleet.engine.cluster.wire import BEAT_SECONDS, TEXT_BYTES, DeviceKind, Order, event_of
from fleet.engine.deploy.operation import Operation
from fleet.engine.pool import Work
from fleet.model.errors import FleetError, InputError, TransferError, UnreachableError, unforeseen
from fleet.model.events import Listener, Output, Progress, Warned
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest
from fleet.profiles.runs import RunStore

PIECE_BYTES = 4 << 20
ABREAST = 8  # machines in one broadcast: 32 MiB of pieces in the scheduler, whatever the cluster

Call = Callable[..., dict[str, Any]]


@dataclass
class _Taker:
    """A machine that wants a blob: the receiving process, and all processes that asked."""

    address: str
    asked: set[str]
    left: set[int]


@dataclass
class _Blob:
    path: Path
    size: int
    takers: dict[str, _Taker] = field(default_factory=dict)

    @property
    def pieces(self) -> int:
        return max(1, -(-self.size // PIECE_BYTES))


class Broadcast:
    """A thread that sends blobs: each piece is read once and sent to all machines that need it.

    `call(addresses, function, *args)` runs a function of `worker` on processes. It returns address
    → result or exception, UnreachableError for a process that is gone. The thread holds one piece
    in memory. A machine gets each blob once, whatever the number of its processes and boards. A
    machine that asks late joins at the next piece.
    """

    def __init__(self, call: Call, fail: Callable[[set[str], str, FleetError], None]) -> None:
        self._call, self._fail = call, fail
        self._wanted: dict[str, _Blob] = {}
        self._lock = threading.Condition()
        self._ended = False
        self.bytes_read = 0
        self.bytes_sent: dict[str, int] = {}
        self._thread = threading.Thread(target=self._go_round, daemon=True, name="fleet-blobs")
        self._thread.start()

    def want(self, address: str, machine: str, blobs: Mapping[str, tuple[int, Path]]) -> None:
        """Request blobs (sha256 → size, path here) for a process of `machine`."""
        with self._lock:
            for sha, (size, path) in blobs.items():
                blob = self._wanted.setdefault(sha, _Blob(path, size))
                taker = blob.takers.get(machine)
                if taker is None:
                    blob.takers[machine] = _Taker(address, {address}, set(range(blob.pieces)))
                else:
                    taker.asked.add(address)
            self._lock.notify_all()

    def close(self) -> None:
        """Stop after the current piece."""
        with self._lock:
            self._ended = True
            self._lock.notify_all()
        self._thread.join()

    def _go_round(self) -> None:
        while True:
            with self._lock:
                while not self._wanted and not self._ended:
                    self._lock.wait()
                if self._ended:
                    return
                sha, blob = next(iter(self._wanted.items()))
            try:
                self._turn(sha, blob)
            except (OSError, FleetError) as error:
                self._give_up(sha, blob, error)

    def _turn(self, sha: str, blob: _Blob) -> None:
        """Read the file once for the missing pieces, then finish the machines that have them
        all.
        """
        with blob.path.open("rb") as stream:
            for index in range(blob.pieces):
                with self._lock:
                    takers = {k: t for k, t in blob.takers.items() if index in t.left}
                if self._ended:
                    return
                if takers:
                    self._send(sha, blob, index, takers, _read(stream, blob, index))
        self._finish(sha, blob)

    def _send(
        self, sha: str, blob: _Blob, index: int, takers: dict[str, _Taker], data: bytes
    ) -> None:
        self.bytes_read += len(data)
        offset, names = index * PIECE_BYTES, list(takers)
        for start in range(0, len(names), ABREAST):
            group = {takers[name].address: name for name in names[start : start + ABREAST]}
            answers = self._call(list(group), worker.take_piece, sha, blob.size, offset, data)
            for address, name in group.items():
                problem = answers.get(
                    address, UnreachableError("the connection to the dask worker broke")
                )
                if isinstance(problem, Exception):
                    self._lose(sha, blob, name, problem)
                else:
                    takers[name].left.discard(index)
                    self.bytes_sent[name] = self.bytes_sent.get(name, 0) + len(data)

    def _finish(self, sha: str, blob: _Blob) -> None:
        with self._lock:
            whole = {taker.address: name for name, taker in blob.takers.items() if not taker.left}
        answers = self._call(list(whole), worker.finish_blob, sha) if whole else {}
        for address, name in whole.items():
            problem = answers.get(
                address, UnreachableError("the connection to the dask worker broke")
            )
            if isinstance(problem, Exception):
                self._lose(sha, blob, name, problem)
        with self._lock:
            for name in whole.values():
                blob.takers.pop(name, None)
            if not blob.takers:
                self._wanted.pop(sha, None)

    def _lose(self, sha: str, blob: _Blob, name: str, problem: Exception) -> None:
        """Send the blob to another process of the machine whose process failed with `problem`.

        If no process is left that asked, or the machine cannot store it, they all get an error.
        """
        with self._lock:
            taker = blob.takers[name]
            taker.asked.discard(taker.address)
            if isinstance(problem, UnreachableError) and taker.asked:
                taker.address = min(taker.asked)
                taker.left = set(range(blob.pieces))
                return
            blob.takers.pop(name)
        error = TransferError(
            f"the worker {name} cannot store a file: {problem}",
            hint="check the free disk space on the machine of the worker: df -h",
        )
        self._fail(taker.asked | {taker.address}, sha, error)
        self._call([taker.address], worker.drop_blob, sha)

    def _give_up(self, sha: str, blob: _Blob, problem: Exception) -> None:
        with self._lock:
            self._wanted.pop(sha, None)
            takers = list(blob.takers.values())
        error = TransferError(f"cannot read {blob.path}: {problem}", hint="deploy again")
        for taker in takers:
            self._fail(taker.asked, sha, error)
            self._call([taker.address], worker.drop_blob, sha)


def _read(stream: Any, blob: _Blob, index: int) -> bytes:  # noqa: ANN401 - a binary file
    stream.seek(index * PIECE_BYTES)
    data: bytes = stream.read(PIECE_BYTES)
    if len(data) != min(PIECE_BYTES, blob.size - index * PIECE_BYTES):
        raise TransferError(f"the file {blob.path} was modified while fleet sent it")
    return data


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
