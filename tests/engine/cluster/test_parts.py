"""The parts alone: placing, thinning, blobs in pieces, what comes home, what pickles."""

from __future__ import annotations

import errno
import hashlib
import os
import pickle
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from fleet.engine.cluster import remote_job, worker
from fleet.engine.cluster.blobs import Blobs
from fleet.engine.cluster.connecting import ResultCollection
from fleet.engine.cluster.remote_job import Broadcast
from fleet.engine.cluster.wire import Carried, Order, Place, Reply, event_of, place_of, serving
from fleet.engine.cluster.worker import PROGRESS_SECONDS, Publisher
from fleet.engine.pool import DeviceResult
from fleet.model import errors
from fleet.model.errors import (
    FleetError,
    InputError,
    TransferError,
    UnreachableError,
    WorkstationError,
)
from fleet.model.events import DeviceDone, Output, Progress, StepStarted, Warned
from fleet.model.inventory import Host
from fleet.model.plain import to_plain
from fleet.model.playbook import RunSpec
from fleet.profiles.runs import RunStore
from fleet.runtimes.targets import known_targets
from tests.profiles.test_runs import record

from ..conftest import Bench

EVERY = [
    one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, FleetError)
]


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_errors_survive_the_way_home(kind: type[FleetError]) -> None:
    position = errors.Position(Path("/x.yaml"), 3, 4)
    error = kind("what", hint="try", device="lab001", step="send", position=position)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert to_plain(back) == to_plain(error)
    assert (str(back), back.exit_code, back.retryable) == (
        str(error),
        kind.exit_code,
        kind.retryable,
    )
    assert back.position == position


@pytest.mark.parametrize("target", known_targets())
def test_a_worker_gives_runners_the_same_kit(bench: Bench, tmp_path: Path, target: str) -> None:
    """A worker took Windows devices for Linux devices without a DSP."""
    local = bench.operation(offline=True).builder
    order = Order("id", "run", "bring", local.playbook, bundle=local.bundle)
    remote = worker.RemoteBuilder(order, print, Blobs(tmp_path), _never, _never)
    spec = RunSpec(local.runner.name)
    kits = [one.kit(spec, has_tool=True, target=target) for one in (local, remote)]
    assert replace(kits[0], runtime_root=None) == kits[1]


def _never(*_: object) -> NoReturn:
    raise AssertionError("the workstation is not asked")


def test_a_site_is_a_name_or_a_resource() -> None:
    info = {"name": 7, "nthreads": 4, "resources": {"site-berlin": 1.0, "GPU": 2.0}}
    by_resource = place_of("tcp://a", info)
    by_name = Place("tcp://b", "berlin", 1)
    numbered = Place("tcp://c", "berlin-2", 1)
    other = Place("tcp://d", "berlinale", 1)
    every = [by_resource, by_name, numbered, other]
    assert serving("berlin", every) == [by_resource, by_name, numbered]
    assert serving("", every) == every
    with pytest.raises(InputError, match=r"serves site 'rome'.*berlin"):
        serving("rome", every)


def test_events_are_batched_and_progress_is_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.engine.cluster.worker.FLUSH_SECONDS", 3600.0)
    batches: list[list[dict[str, Any]]] = []
    publisher = Publisher(batches.append)
    for done in range(10_000):
        publisher(Progress(f"b{done % 100}", "send", done, 10_000))
    publisher(StepStarted("b0", "send", "x", 5))
    publisher.flush()
    first = [event_of(one) for batch in batches for one in batch]
    assert len(first) == 101, "the newest of each board, and the step"
    assert Progress("b0", "send", 9_900, 10_000) in first
    batches.clear()
    publisher(Progress("b0", "send", 10_000, 10_000))
    publisher(Warned("b1", "w"))
    publisher.flush()
    assert [event_of(one) for one in batches.pop()] == [Warned("b1", "w")], PROGRESS_SECONDS
    publisher.flush(last_of="b0")
    assert [event_of(one) for one in batches.pop()] == [Progress("b0", "send", 10_000, 10_000)]
    publisher(DeviceDone("b0", "ok", "", "", 0.0, 0, 0, False))
    for _ in range(100):
        publisher(Output("b0", "stdout", "x" * 1000))
    publisher.close()
    (last,) = batches
    assert sum(len(one.get("text", "")) for one in last) < 20_000
    assert event_of(last[-1]) == Warned(
        "b0", "fleet does not show the rest of the output, because it is too long"
    )


def blob(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_blob_gets_its_name_only_with_its_hash(tmp_path: Path) -> None:
    store, data = Blobs(tmp_path / "blobs"), os.urandom(100)
    sha = blob(data)
    store.take(sha, 100, 60, data[60:])
    store.take(sha, 100, 0, data[:60])
    assert not store.has(sha, 100)
    store.finish(sha)
    assert store.has(sha, 100)
    assert store.path(sha).read_bytes() == data
    store.path(sha).unlink()
    store.take(sha, 100, 0, data[:60] + bytes(40))
    with pytest.raises(TransferError, match="was damaged on its way"):
        store.finish(sha)
    store.take(sha, 100, 0, data[:60])
    store.drop(sha)
    assert list((tmp_path / "blobs").iterdir()) == []


def test_a_shared_file_must_have_the_content_not_only_the_size(tmp_path: Path) -> None:
    original = tmp_path / "model.bin"
    original.write_bytes(b"right")
    sha = blob(b"right")
    assert Blobs(tmp_path / "blobs").adopt(sha, 5, original)
    assert Blobs(tmp_path / "blobs").has(sha, 5)
    original.write_bytes(b"wrong")
    assert not Blobs(tmp_path / "blobs").has(sha, 5), "a link is hashed by each process"
    assert not Blobs(tmp_path / "other").adopt(sha, 5, original)
    assert not Blobs(tmp_path / "other").adopt(sha, 5, tmp_path / "absent")


class Machines:
    """Stands for processes of workers: what they took, and what they answer."""

    def __init__(self) -> None:
        self.got: dict[str, dict[int, bytes]] = {}
        self.finished: list[str] = []
        self.failed: list[tuple[set[str], str]] = []
        self.problems: dict[str, Exception] = {}
        self.before: Callable[[int], None] = lambda _: None
        self.changed = threading.Condition()

    def call(self, addresses: list[str], function: object, *args: Any) -> dict[str, Any]:
        said = {}
        with self.changed:
            for address in addresses:
                said[address] = self.problems.get(address)
                if function is worker.take_piece and said[address] is None:
                    self.before(args[2])
                    pieces = self.got.setdefault(address, {})
                    assert args[2] not in pieces, "a piece came twice"
                    pieces[args[2]] = args[3]
                if function is worker.finish_blob and said[address] is None:
                    self.finished.append(address)
            self.changed.notify_all()
        return said

    def fail(self, addresses: set[str], key: str, error: FleetError) -> None:
        with self.changed:
            self.failed.append((addresses, error.message))
            self.changed.notify_all()

    def wait(self, there: Callable[[], object]) -> None:
        with self.changed:
            assert self.changed.wait_for(there, 20)


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Machines:
    monkeypatch.setattr(remote_job, "PIECE_BYTES", 10)
    return Machines()


def test_one_that_comes_late_joins_and_gets_the_rest(machines: Machines, tmp_path: Path) -> None:
    data = os.urandom(95)
    (tmp_path / "f").write_bytes(data)
    wanted = {"sha": (95, tmp_path / "f")}

    def join(offset: int) -> None:
        if offset == 50:
            made.want("b1", "B", wanted)

    machines.before = join
    made = Broadcast(machines.call, machines.fail)
    made.want("a1", "A", wanted)
    made.want("a2", "A", wanted)
    machines.wait(lambda: len(machines.finished) == 2)
    made.close()
    assert machines.finished == ["a1", "b1"]
    for address in ("a1", "b1"):
        assert b"".join(part for _, part in sorted(machines.got[address].items())) == data
    assert made.bytes_sent == {"A": 95, "B": 95}
    assert made.bytes_read == 95 + 60, "six pieces a second time"


def test_another_process_of_the_machine_takes_over(machines: Machines, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(30))
    made = Broadcast(machines.call, machines.fail)
    machines.problems["a1"] = UnreachableError("the worker is lost")
    with machines.changed:
        made.want("a1", "A", {"sha": (30, tmp_path / "f")})
        made.want("a2", "A", {"sha": (30, tmp_path / "f")})
    machines.wait(lambda: machines.finished or machines.failed)
    made.close()
    assert machines.finished == ["a2"]


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), None])
def test_what_cannot_be_stored_or_read_is_said(
    machines: Machines, tmp_path: Path, problem: OSError | None
) -> None:
    (tmp_path / "f").write_bytes(bytes(30))
    size = 30 if problem else 31
    if problem is not None:
        machines.problems["a1"] = problem
    made = Broadcast(machines.call, machines.fail)
    made.want("a1", "A", {"sha": (size, tmp_path / "f")})
    machines.wait(lambda: machines.failed)
    made.close()
    ((addresses, message),) = machines.failed
    assert addresses == {"a1"}
    assert ("No space left" if problem else "was modified while fleet sent it") in message


@pytest.mark.parametrize("name", ["runs/../../x", "/etc/x", "other/x", "undo/../x"])
def test_a_worker_writes_only_records_here(tmp_path: Path, name: str) -> None:
    home = ResultCollection(lambda *_: {}, "order", RunStore(tmp_path / "runs"))
    with pytest.raises(FleetError):
        home.bring(Reply("done", "w", None, (Carried(name, 1, b"x"),)), "tcp://w")
    assert list(tmp_path.rglob("x")) == []


def test_large_records_come_in_pieces_and_undo_logs_too(tmp_path: Path) -> None:
    pieces = {0: b"a" * 4, 4 << 20: b"b" * 3}

    def call(addresses: list[str], _: object, order: str, name: str, at: int, size: int) -> Any:
        return {addresses[0]: pieces[at]}

    home = ResultCollection(call, "order", RunStore(tmp_path / "runs"))
    large = Carried("runs/r/lab001/0/stdout.log", (4 << 20) + 3)
    home.bring(
        Reply("done", "w", None, (large, Carried("undo/r/lab001.jsonl", 2, b"{}"))), "tcp://w"
    )
    assert (tmp_path / "runs/r/lab001/0/stdout.log").read_bytes() == b"aaaabbb"
    assert (tmp_path / "undo/r/lab001.jsonl").read_bytes() == b"{}"
    gone = ResultCollection(lambda *_: {}, "order", RunStore(tmp_path / "runs"))
    with pytest.raises(TransferError, match="did not send the result"):
        gone.bring(Reply("done", "w", None, (large,)), "tcp://w")


@pytest.mark.parametrize("what", ["file", "record"])
def test_a_full_disk_at_home_is_said_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    runs = RunStore(tmp_path / "runs")
    (tmp_path / "runs" / "r" / "evk" / "0").mkdir(parents=True)

    def full(path: Path, *_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    where = (
        "fleet.engine.cluster.connecting.open_private"
        if what == "file"
        else ("fleet.profiles.runs.write_private")
    )
    monkeypatch.setattr(where, full)
    carried = (Carried("runs/r/evk/0/stdout.log", 1, b"x"),)
    result = DeviceResult[None](Host("evk"), records=[record()])
    with pytest.raises(WorkstationError, match="No space left on device") as caught:
        ResultCollection(lambda *_: {}, "order", runs).bring(
            Reply("done", "w", result, carried), "w"
        )
    name = "stdout.log" if what == "file" else "record.json"
    assert f"cannot write {tmp_path}/runs/r/evk/0/{name}" in caught.value.message
    assert caught.value.hint.startswith("free disk space: df -h")
