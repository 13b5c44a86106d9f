"""The code that runs on a worker. `work_on` is the only task; the workstation calls the rest.

No task raises an exception, because distributed would log its arguments. The state is one `Run` for
each order and process.
"""

from __future__ import annotations

import asyncio
import importlib
import platform
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import structs

from fleet.bundles.closure import OpenedFiles
from fleet.engine.cluster.blobs import Blobs
from fleet.engine.cluster.wire import (
    SILENT_SECONDS,
    TOPIC,
    Carried,
    DeviceKind,
    Order,
    Reply,
    blobs_of,
)
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.deploy.release_builder import Builder, runner_of
from fleet.engine.deploy.resolver import Parts
from fleet.engine.lease.lease import TTL_SECONDS
from fleet.engine.pool import DeviceResult, Work, guarded
from fleet.engine.session import Session
from fleet.engine.transfer.context import TransferContext
from fleet.model.errors import CancelledError, InputError, LeaseHeldError, TransferError
from fleet.model.events import (
    DeviceDone,
    Event,
    Listener,
    Output,
    Progress,
    RunDone,
    StepStarted,
    Warned,
)
from fleet.model.files import FileRef
from fleet.model.home import fleet_home, private_folder, write_private
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest
from fleet.model.masking import masked_data
from fleet.model.plain import to_plain
from fleet.model.plan import DevicePlan
from fleet.model.version import VERSION
from fleet.profiles.runs import RunStore

FLUSH_SECONDS = 0.25
PROGRESS_SECONDS = 1.0  # between two progress events of a board; people cannot read faster
OUTPUT_CHARACTERS = 16_000  # limit of a batch; the records have the output of runners anyway
BATCH_EVENTS = 500


class Publisher:
    """A Listener that sends batches with `send`, at most one each FLUSH_SECONDS.

    The batches are bounded. Only the newest Progress of each board and step is sent, and Output
    beyond a limit is cut with a warning. DeviceDone and RunDone are not sent: the workstation makes
    them from the result when the records have arrived.
    """

    def __init__(self, send: Callable[[list[dict[str, Any]]], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._progress: dict[tuple[str, str], Progress] = {}
        self._last_sent: dict[tuple[str, str], float] = {}
        self._characters = 0
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True, name="fleet-events")
        self._thread.start()

    def __call__(self, event: Event) -> None:
        """Accept an event and send it within FLUSH_SECONDS."""
        if isinstance(event, DeviceDone | RunDone):
            return
        with self._lock:
            if isinstance(event, Progress):
                self._progress[event.host, event.step] = event
            elif not isinstance(event, Output):
                self._events.append(event)
            elif self._characters <= OUTPUT_CHARACTERS:
                self._characters += len(event.text)
                cut = self._characters > OUTPUT_CHARACTERS
                self._events.append(event)
                if cut:
                    self._events.append(
                        Warned(
                            event.host,
                            "fleet does not show the rest of the output, because it is too long",
                        )
                    )
        self._wake.set()

    def flush(self, *, last_of: str = "") -> None:
        """Send all pending events, for the board `last_of` also the newest progress."""
        now = time.monotonic()
        with self._lock:
            events, self._events, self._characters = self._events, [], 0
            for key in list(self._progress):
                if key[0] == last_of or now - self._last_sent.get(key, 0.0) >= PROGRESS_SECONDS:
                    events.append(self._progress.pop(key))
                    self._last_sent[key] = now
            if last_of:
                self._last_sent = {k: v for k, v in self._last_sent.items() if k[0] != last_of}
            for start in range(0, len(events), BATCH_EVENTS):
                self._send([to_plain(event) for event in events[start : start + BATCH_EVENTS]])

    def close(self) -> None:
        """Send the rest and stop."""
        self._ended.set()
        self._wake.set()
        self.flush()

    def _keep(self) -> None:
        while not self._ended.wait(FLUSH_SECONDS):
            self._wake.wait()
            self._wake.clear()
            self.flush()
            if self._progress:
                self._wake.set()


AskKind = Callable[[str, str | None, str | None], DeviceKind]
Fetch = Callable[[str, dict[str, tuple[int, Path]]], None]


class RemoteBuilder(Builder):
    """A builder that reads neither bundle nor runtimes: the workstation did so for the whole fleet.

    `ask_kind` waits for the answer of the workstation and raises its FleetError. `fetch` waits
    until blobs are on this machine. Files of a manifest have paths of this machine's Blobs, whether
    they exist already or not.
    """

    def __init__(
        self, order: Order, say: Listener, blobs: Blobs, ask_kind: AskKind, fetch: Fetch
    ) -> None:
        if order.playbook is None or order.bundle is None:
            raise ValueError("a remote job without a playbook cannot build a release")
        super().__init__(order.playbook, runner_of(order.playbook), order.bundle)
        self._say = say
        self._blobs = blobs
        self._ask = ask_kind
        self._fetch = fetch
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str | None, str | None], DeviceKind] = {}
        self._origins: dict[str, Path] = {}

    def parts(self, target: str, arch: str | None, python: str | None = None) -> Parts:
        """Return the parts from the workstation, asked once for each process; see Builder."""
        return self._kind(target, arch, python).parts

    def manifest(self, parts: Parts) -> Manifest:
        """Return the manifest from the workstation; see Builder."""
        return next(kind.manifest for kind in self._known.values() if kind.parts is parts)

    def opened(self, parts: Parts, manifest: Manifest) -> OpenedFiles:  # noqa: ARG002
        """Return the opened files that the workstation determined; see Builder."""
        return next(kind.opened for kind in self._known.values() if kind.parts is parts)

    def corrected(self, parts: Parts) -> tuple[str, ...]:
        """Return the names of the corrected files, as the workstation gave them."""
        return next(kind.corrected for kind in self._known.values() if kind.parts is parts)

    def kinds(self, target: str, arch: str | None, python: str | None = None) -> dict[Path, str]:
        """Return host path → machine of the files, as the workstation gave it."""
        return dict(self._kind(target, arch, python).kinds)

    def bring(self, plan: DevicePlan) -> None:
        """Fetch the missing blobs of the plan to this machine, and wait for them."""
        lacking = {
            sha: (size, self._origins[sha])
            for sha, size in blobs_of(plan).items()
            if not self._blobs.has(sha, size)
        }
        if lacking:
            self._fetch(plan.host.name, lacking)

    def _kind(self, target: str, arch: str | None, python: str | None) -> DeviceKind:
        with self._lock:
            key = (target, arch, python)
            if key not in self._known:
                self._known[key] = self._here(self._ask(*key))
            return self._known[key]

    def _here(self, kind: DeviceKind) -> DeviceKind:
        """Return the kind with paths of this machine, and remember the original paths."""
        paths: dict[Path, Path] = {}

        def moved(item: FileRef) -> FileRef:
            self._origins[item.sha256] = item.source
            paths[item.source] = self._blobs.path(item.sha256)
            return replace(item, source=paths[item.source])

        manifest = structs.replace(
            kind.manifest, files=tuple(moved(item) for item in kind.manifest.files)
        )
        names = {paths[path]: word for path, word in kind.kinds.items() if path in paths}
        return DeviceKind(kind.parts, manifest, names, kind.opened, kind.corrected)


INLINE_BYTES = 256 << 10  # a profile has about 50 kB; logs may have 64 MiB
POLL_SECONDS = 0.2
AGAIN_SECONDS = 5.0
PATIENCE_SECONDS = TTL_SECONDS + 15.0  # the lease of a lost worker has ended by then

_runs: dict[str, Run] = {}
_blobs: dict[Path, Blobs] = {}


def blobs() -> Blobs:
    """Return the blobs of this machine."""
    root = fleet_home() / "blobs"
    return _blobs.setdefault(root, Blobs(root))


class Run:
    """An order in this process: one Operation, one builder, its sessions and its waits."""

    def __init__(self, order: Order, log_event: Callable[[str, Any], None], me: str) -> None:
        self.order = order
        self._log, self._me = log_event, me
        self.folder = fleet_home() / "cluster" / order.id
        self.store = RunStore(self.folder / "runs")
        self.publisher = Publisher(lambda events: self.say(events=events))
        self.sessions: set[Session] = set()
        self.stopped = False
        self.last_beat = time.monotonic()
        self.answers: dict[str, DeviceKind | Exception] = {}
        self._changed = threading.Condition()
        self.transfer = TransferContext()
        self._operation: Operation | None = None
        self.work: Work[Any] = self._work()

    def _work(self) -> Work[Any]:
        order = self.order
        module, _, name = order.what.rpartition(":")
        if module:
            if not module.startswith("fleet."):
                raise InputError(
                    f"the dask worker refused a job that asks for {order.what}, because it "
                    "runs only functions of fleet",
                    hint="use fleet's own commands or API with this cluster; if nobody here "
                    "sent this job, "
                    "check who can reach the dask scheduler",
                )
            work: Work[Any] = getattr(importlib.import_module(module), name)
            return work
        if order.playbook is None:
            raise InputError(f"the job {order.what} needs a playbook", hint="fleet deploy PLAYBOOK")
        builder = RemoteBuilder(order, self.publisher, blobs(), self.ask_kind, self.fetch)
        operation = Operation(
            order.playbook,
            (),
            self.publisher,
            options=order.options,
            builder=builder,
            run_id=order.run_id,
            resources=Resources(runs=self.store),
        )
        self.transfer, self._operation = operation.transfer, operation
        bound: Work[Any] = getattr(operation, name)
        return bound

    def owe(self, host: str) -> None:
        """Mark a board as owed: it gets the steps after the switch even if it has the release."""
        with self._changed:
            if self._operation is not None:
                self._operation.owed |= {host}

    def say(self, **message: Any) -> None:  # noqa: ANN401 - whatever msgpack takes
        """Send a message to the workstation."""
        self._log(TOPIC, {"order": self.order.id, "worker": self._me, **message})

    def host(self, host: Host) -> Host:
        """Return the host with paths of this machine.

        Raises InputError if a key is missing here.
        """
        for path in host.identity_files:
            if not path.is_file():
                raise InputError(
                    f"the key {path} is missing on the worker {socket.gethostname()}; fleet never "
                    "sends keys",
                    device=host.name,
                    hint="copy a key to this path of the worker, or remove `identity_file:` to "
                    "use the "
                    "worker's ssh-agent and ~/.ssh",
                )
        here = self.folder / "texts"
        places = {path: here / str(n) for n, path in enumerate(sorted(self.order.texts))}
        for path, place in places.items():
            if not place.exists():
                private_folder(here)
                part = place.with_name(f"{place.name}.{threading.get_ident()}.part")
                write_private(part, self.order.texts[path])
                part.replace(place)
        known = places.get(host.known_hosts, host.known_hosts)
        config = places.get(host.ssh_config, host.ssh_config) if host.ssh_config else None
        return replace(host, known_hosts=known, ssh_config=config)

    def ask_kind(self, target: str, arch: str | None, python: str | None) -> DeviceKind:
        """Return the release for devices of this kind.

        The workstation may fetch a runtime for that.
        """
        key = f"{target} {arch or ''} {python or ''}"
        self.say(ask="kind", key=key, target=target, arch=arch, python=python)
        self._wait(lambda: key in self.answers, f"the list of files for devices of the kind {key}")
        answer = self.answers[key]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def fetch(self, host: str, wanted: dict[str, tuple[int, Path]]) -> None:
        """Fetch blobs to this machine, from a shared disk or else from the workstation."""
        store, total = blobs(), sum(size for size, _ in wanted.values())
        left = {s: size for s, (size, path) in wanted.items() if not store.adopt(s, size, path)}
        if not left:
            return
        name = socket.gethostname()
        self.publisher(StepStarted(host, "fetch", f"{len(left)} files to worker {name}", total))
        self.say(ask="blobs", blobs=sorted(left))
        for sha, size in left.items():
            self._wait(lambda: self._here(host, sha, left) or sha in self.answers, sha[:12])  # noqa: B023
            if not store.has(sha, size):
                raise self._failure(sha)

    def _here(self, host: str, sha: str, left: dict[str, int]) -> bool:
        store, done = blobs(), 0
        for blob, size in left.items():
            part = store.parts.get(blob)
            done += size if store.path(blob).exists() else part.written if part else 0
        self.publisher(Progress(host, "fetch", done, sum(left.values())))
        return store.has(sha, left[sha])

    def _failure(self, sha: str) -> Exception:
        answer = self.answers.pop(sha, None)
        if isinstance(answer, Exception):
            return answer
        return TransferError(
            "the worker of the dask cluster did not receive the file with the SHA-256 "
            f"{sha[:12]}...",
            hint="deploy again",
        )

    def _wait(self, there: Callable[[], bool], what: str) -> None:
        with self._changed:
            while not there():
                if self.stopped:
                    raise CancelledError(
                        "you stopped the command (Ctrl-C)",
                        hint="run the same command again; it resumes where it stopped",
                    )
                if time.monotonic() - self.last_beat > SILENT_SECONDS:
                    raise TransferError(
                        f"the dask worker asked this workstation for {what}, but got no answer",
                        hint="deploy again; if it fails again, check that the worker can reach "
                        "this workstation",
                    )
                self._changed.wait(POLL_SECONDS)

    def answer(self, key: str, value: DeviceKind | Exception) -> None:
        """Store the answer of the workstation, or the reason why a blob is not available."""
        with self._changed:
            self.answers[key] = value
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop the running work; each board has either the old or the new release."""
        self.stopped = True
        for session in list(self.sessions):
            session.cancel()


def who(dask_worker: Any = None) -> dict[str, str]:  # noqa: ANN401 - a distributed.Worker
    """Return the versions and the machine of this process, as data that other versions can read."""
    root = fleet_home()
    private_folder(root)
    about = root.stat()
    boot = Path("/proc/sys/kernel/random/boot_id")
    kernel = boot.read_text("ascii")[:8] if boot.exists() else ""
    return {
        "fleet": VERSION,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        # Cloned machines have one name and one machine-id; a mount has its own device number.
        "machine": f"{platform.node()}:{root} {kernel} {about.st_dev:x} {about.st_ino:x}",
        "worker": str(getattr(dask_worker, "name", "")),
    }


def open_run(order: Order, dask_worker: Any) -> None:  # noqa: ANN401
    """Accept an order. Raises an error if its work cannot be prepared."""
    if order.id not in _runs:
        blobs().tidy()
        _runs[order.id] = Run(order, dask_worker.log_event, dask_worker.address)


def beat(order: str) -> None:
    """Note that the workstation is alive."""
    if order in _runs:
        _runs[order].last_beat = time.monotonic()


def answer(order: str, key: str, value: DeviceKind | Exception) -> None:
    """Pass an answer to the run of an order; see Run.answer."""
    if order in _runs:
        _runs[order].answer(key, value)


def stop_run(order: str) -> None:
    """Stop the run of an order; see Run.stop."""
    if order in _runs:
        _runs[order].stop()


def end_run(order: str, keep: tuple[str, ...] = ()) -> None:
    """Forget an order. `keep` are the hosts whose files the workstation could not get."""
    run = _runs.pop(order, None)
    if run is not None:
        run.stop()
        run.publisher.close()
        if not keep:
            shutil.rmtree(run.folder, ignore_errors=True)


async def take_piece(sha: str, size: int, offset: int, data: bytes) -> None:
    """Write a piece of a blob in a thread.

    A slow disk would block the event loop, and distributed would consider the worker lost.
    """
    await asyncio.to_thread(blobs().take, sha, size, offset, data)


async def finish_blob(sha: str) -> None:
    """Check a blob and give it its name."""
    await asyncio.to_thread(blobs().finish, sha)


def drop_blob(sha: str) -> None:
    """Delete the pieces of a blob."""
    blobs().drop(sha)


async def read_piece(order: str, name: str, offset: int, size: int) -> bytes:
    """Read a piece of a file that a run wrote."""
    path = _runs[order].folder / name

    def read() -> bytes:
        with path.open("rb") as stream:
            stream.seek(offset)
            return stream.read(size)

    return await asyncio.to_thread(read)


def work_on(order: str, host: Host, attempt: int, owed: bool = False) -> Reply:
    """Work on one board. `attempt` counts from 1.

    A repetition by distributed itself is recognised and ends at once. `owed` is True if an earlier
    worker may have switched the release without a run.
    """
    from distributed import Event, get_worker  # noqa: PLC0415

    me = str(get_worker().name)
    run = _runs.get(order)
    if run is None:
        return Reply("unknown", me)
    begun = Event(ticket(order, host.name, attempt))
    if begun.is_set():
        return Reply("again", me)
    begun.set()
    if owed:
        run.owe(host.name)
    result = _work(run, host, patient=attempt > 1)
    result.value = masked_data(result.value)
    run.publisher.flush(last_of=host.name)
    return Reply("done", me, result, _files(run, host.name))


def ticket(order: str, host: str, attempt: int) -> str:
    """Return the name of the flag of a board that was begun."""
    return f"fleet-{order}-{host}-{attempt}"


def _work(run: Run, host: Host, *, patient: bool) -> DeviceResult[Any]:
    end = time.monotonic() + (PATIENCE_SECONDS if patient else 0.0)
    while True:
        result = _once(run, host)
        held = isinstance(result.error, LeaseHeldError) and not result.bytes_sent
        if not held or run.stopped or time.monotonic() > end:
            return result
        time.sleep(AGAIN_SECONDS)


def _once(run: Run, host: Host) -> DeviceResult[Any]:
    try:
        session = Session(run.host(host), run.publisher, transfer=run.transfer)
    except InputError as error:
        return DeviceResult(host, "failed", error.message, error=error)
    run.sessions.add(session)
    try:
        if run.stopped:
            session.cancel()
        return guarded(session, run.work)
    finally:
        run.sessions.discard(session)


def _files(run: Run, host: str) -> tuple[Carried, ...]:
    """Return the records below runs/<run id>/<host>, and the undo logs below undo/<run id>."""
    files = []
    for path in sorted(run.folder.glob(f"*/{run.order.run_id}/*")):
        if path.name == host:
            files += [file for file in sorted(path.rglob("*")) if file.is_file()]
        elif path.name == f"{host}.jsonl":
            files.append(path)
    return tuple(_carried(path, run.folder) for path in files)


def _carried(path: Path, root: Path) -> Carried:
    size = path.stat().st_size
    data = path.read_bytes() if size <= INLINE_BYTES else None
    return Carried(path.relative_to(root).as_posix(), size, data)
