"""Records on disk: whole files, newest first, clear errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.engine.system.undo import UndoLog
from fleet.model.errors import InputError, WorkstationError
from fleet.model.plain import to_plain
from fleet.model.record import Metrics, Record
from fleet.profiles.runs import RunStore, new_run_id
from tests.profiles.records import load


def record(host: str = "evk", **changes: object) -> Record:
    values: dict[str, object] = {
        "run_id": "r", "host": host, "name": "n", "release": "id", "runner": "genie", "repeat": 0,
        "warmup": False, "started": "", "seconds": 1.0, "status": 0,
        "metrics": Metrics(ttft_ms=1.5), "finish": "eos", "problems": (),
        "emulated": True, "argv": ("a",), "env": {}, "files": {},
        "prompt_sha256": "", "origin": {}, "facts": {}, "identity": "host-key x", **changes,
    }  # fmt: skip
    return Record(**values)  # type: ignore[arg-type]


def test_save_and_load(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    for host in ("b", "a"):
        folder = store.folder("20260101-000000-aaaaaa", host, 0, warmup=False)
        store.save(folder, record(host))
    warm = store.folder("20260101-000000-aaaaaa", "a", 0, warmup=True)
    store.save(warm, record("a", warmup=True))
    found = load(store)
    assert [(one["host"], one["warmup"]) for one in found] == [
        ("a", False), ("a", True), ("b", False)
    ]  # fmt: skip
    assert found[0]["metrics"]["ttft_ms"] == 1.5
    assert not list(tmp_path.rglob("*.part"))


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    made = [store.folder("r", "h", 0, warmup=False).name for _ in range(3)]
    made += [store.folder("r", "h", 0, warmup=True).name for _ in range(2)]
    assert made == ["0", "0-2", "0-3", "warmup-0", "warmup-0-2"]


@pytest.mark.parametrize("text", ["{", "[" * 200_000], ids=["cut", "deep"])
def test_a_damaged_log_of_steps_is_named(text: str, tmp_path: Path) -> None:
    log = UndoLog(tmp_path, "r", "h")
    log.path.parent.mkdir()
    log.path.write_text(text + "\n")
    with pytest.raises(InputError, match=r"line 1 of .*h\.jsonl, .* is damaged"):
        log.read()


def test_a_full_disk_is_the_workstations(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    folder = store.folder("r", "h", 0, warmup=False)
    (folder / "record.json.part").symlink_to("/dev/full")
    with pytest.raises(WorkstationError) as caught:
        store.save(folder, record())
    said = f"cannot write {folder}/record.json on this workstation: No space left on device"
    assert caught.value.message == said
    assert caught.value.hint.startswith(f"free disk space: df -h {folder}")
    log = UndoLog(tmp_path, "r", "h")
    log.path.symlink_to("/dev/full")
    with pytest.raises(WorkstationError, match=r"h\.jsonl on this workstation: No space left"):
        log.end()


def test_what_counts() -> None:
    assert record().counts
    assert not record(warmup=True).counts
    assert not record(problems=("cut: x",)).counts
    assert json.loads(json.dumps(to_plain(record())))["counts"] is True


def test_run_ids_sort_by_time_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(1_795_000_000_000_000_000, 1_795_000_002_000_000_000, 20_000_000))
    monkeypatch.setattr("time.time_ns", lambda: next(times))
    ids = [new_run_id() for _ in range(100)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 100
    monkeypatch.setattr("time.time_ns", lambda: 1_795_000_000_000_000_000)
    assert len({new_run_id() for _ in range(20)}) > 1
    assert all(len(one) == len("20261120-224501-3fa9c1") for one in ids)
