"""The store: taking in, finding, marking."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from fleet.model.errors import InputError, ProfileStoreError
from fleet.model.plain import to_plain
from fleet.model.record import Measure, Metrics, Record
from fleet.profiles.runs import RunStore
from fleet.profiles.store import ProfileStore, database
from fleet.profiles.store.rows import insert
from fleet.profiles.store.select import parse
from tests.profiles.records import put, record, run_ids

OLD = time.time() - 3600


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    with ProfileStore(tmp_path / "x.db") as made:
        yield made


@pytest.fixture
def opened() -> Iterator[Callable[..., ProfileStore]]:
    """Open a store and close it when the test ends."""
    with ExitStack() as stack:
        yield lambda *path: stack.enter_context(ProfileStore(*path))


def fill(store: ProfileStore, *records: Record) -> None:
    for one in records:
        assert insert(store.link, one, to_plain(one), "")


def hosts(store: ProfileStore, text: str) -> list[str]:
    return [row.host for row in store.find(parse(text))]


def varied() -> list[Record]:
    base = record()
    return [
        base,
        replace(base, host="evk-02", started="2026-11-02T10:00:00Z", emulated=False),
        replace(
            base, run_id="20261103-090000-bbbbbb", host="phone", name="other", runner="mllm",
            started="2026-11-03T09:00:00Z", emulated=None, identity="serial 5",
            origin={"build_id": "v2.45.0.260326154327_1"}, facts={}, problems=("cut: x",),
            tags=("pilot", "warm"),
        ),
    ]  # fmt: skip


def test_last_is_by_time_and_not_by_the_name_of_the_run(store: ProfileStore) -> None:
    named = replace(record(), run_id="zz-imported", started="2026-10-01T10:00:00Z", host="old")
    fill(store, named, *varied())
    assert hosts(store, "last") == ["phone"]
    assert hosts(store, "prev") == []
    assert [row.run for row in store.list_runs(parse("all"), None)][-1] == "zz-imported"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ["phone", "evk-02", "evk-01"]),
        ("last", ["phone"]),
        ("20261101-100000-aaaaaa", ["evk-02", "evk-01"]),
        ("20261101*", ["evk-02", "evk-01"]),
        ("host:evk-*", ["evk-02", "evk-01"]),
        ("host:evk-01,host:phone", ["phone", "evk-01"]),
        ("host:evk-?1", []),
        ("runtime:2.51.0", ["evk-02", "evk-01"]),
        ("runtime:2.5", []),
        ("runtime:2.45.0.260326154327", ["phone"]),
        ("chip:qcs9075", ["evk-02", "evk-01"]),
        ("board:serial 5", ["phone"]),
        ("name:other", ["phone"]),
        ("runner:genie", ["evk-02", "evk-01"]),
        ("release:no-such", []),
        ("tag:pilot,tag:warm", ["phone"]),
        ("tag:pilot,tag:cold", []),
        ("since:2026-11-02", ["phone", "evk-02"]),
        ("until:2026-11-02", ["evk-02", "evk-01"]),
        ("since:2026-11-02T10:00,until:2026-11-02T10:00", ["evk-02"]),
        ("emulated:unknown", ["phone"]),
        ("emulated:no", ["evk-02"]),
        ("counted:no", ["phone"]),
    ],
)
def test_finding_newest_first(store: ProfileStore, text: str, found: list[str]) -> None:
    fill(store, *varied())
    assert hosts(store, text) == found
    assert store.count(parse(text)) == len(found)
    assert [one.host for one in store.records(parse(text))] == found[::-1], "oldest first"
    assert [one["host"] for one in store.each(parse(text))] == found[::-1]


def test_a_record_comes_back_whole(store: ProfileStore) -> None:
    others = {"load_us": Measure(5.0, "us")}
    one = record(metrics=Metrics(ttft_ms=1.25, others=others, source=others), tags=("b", "a"))
    plain = {**to_plain(one), "later": {"version": 3}}
    insert(store.link, one, plain, "")
    assert store.records(parse("")) == [replace(one, tags=("a", "b"))]
    assert store.plain(parse(""))[0]["later"] == {"version": 3}, "unknown keys are kept"


def test_the_same_record_is_taken_once_whatever_its_tags_and_places(store: ProfileStore) -> None:
    one = record()
    fill(store, one)
    again = replace(one, tags=("new",), artifacts={"a": "/elsewhere"})
    assert insert(store.link, again, to_plain(again), "") == 0
    other = replace(one, repeat=1)
    assert insert(store.link, other, to_plain(other), "")


def test_runs(store: ProfileStore) -> None:
    fill(store, *varied())
    found = [
        (one.run, one.name, one.devices, one.records, one.counted, one.emulated)
        for one in store.list_runs(parse(""))
    ]
    assert found == [
        ("20261103-090000-bbbbbb", "other", 1, 1, 0, "unknown"),
        ("20261101-100000-aaaaaa", "tiny", 2, 2, 2, "mixed"),
    ]
    assert len(store.list_runs(parse(""), 1)) == 1
    assert store.list_runs(parse("host:evk-01"))[0].emulated == "yes"


def test_tags(store: ProfileStore) -> None:
    fill(store, *varied())
    assert store.tag(parse("host:evk-*"), "old") == 2
    assert store.tag(parse(""), "old") == 1, "two have it already"
    assert store.find(parse("tag:old,name:other"))[0].tags == ("old", "pilot", "warm")
    assert store.tag(parse("host:phone"), "old", away=True) == 1
    assert hosts(store, "tag:old") == ["evk-02", "evk-01"]
    for name in ("", "a b", "a,b", "a:b", "-x"):
        with pytest.raises(InputError, match="is not a tag name"):
            store.tag(parse(""), name)


def test_a_baseline_stays_what_it_was(store: ProfileStore) -> None:
    fill(store, *varied()[:2])
    assert store.save_baseline("good", parse("last")) == 2
    fill(store, varied()[2])
    assert hosts(store, "last") == ["phone"]
    assert hosts(store, "baseline:good,host:evk-01") == ["evk-01"]
    with pytest.raises(InputError, match="already") as caught:
        store.save_baseline("good", parse("last"))
    assert caught.value.hint.endswith("--replace")
    assert store.save_baseline("good", parse("last"), replace=True) == 1
    assert [(one.name, one.selection, one.records) for one in store.baselines()] == [
        ("good", "last", 1)
    ]
    store.remove_baseline("good")
    assert store.baselines() == []
    assert len(hosts(store, "")) == 3
    for act in (lambda: store.find(parse("baseline:good")), lambda: store.remove_baseline("good")):
        with pytest.raises(InputError, match="no baseline is named 'good'"):
            act()
    with pytest.raises(InputError, match="no stored result matches"):
        store.save_baseline("x", parse("host:none"))


def test_a_reference_is_there_and_stays(store: ProfileStore) -> None:
    query = parse("reference:nemotron-iq9075")
    assert store.records(query)[0].host == store.find(query)[0].host == "iq9075-published"
    assert store.records(query)[0].metrics.decode_tps == 10.03
    assert store.count(query) == len(list(store.each(query))) == 1
    assert store.list_runs(query)[0].emulated == "no"
    with pytest.raises(InputError, match="come with fleet"):
        store.tag(query, "x")
    with pytest.raises(InputError, match="come with fleet"):
        store.save_baseline("x", query)
    with pytest.raises(InputError, match="'x' is not one of the reference results") as caught:
        store.records(parse("reference:x"))
    assert "reference:nemotron-iq9075" in caught.value.hint


def test_runs_of_fleet_are_taken_in_on_the_next_look(
    tmp_path: Path, opened: Callable[..., ProfileStore]
) -> None:
    runs = RunStore(tmp_path)
    store = opened(tmp_path)
    assert store.look() == []
    one = record()
    for repeat in range(2):
        folder = runs.folder(one.run_id, one.host, repeat, warmup=False)
        runs.save(folder, replace(one, repeat=repeat))
        assert store.look() == []
        assert store.count(parse("")) == repeat + 1
    assert run_ids(runs) == [one.run_id], "our own files are no run"


def test_an_old_run_is_looked_into_again_only_when_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Callable[..., ProfileStore]
) -> None:
    path = put(tmp_path, record())
    run = path.parents[2]
    os.utime(run, (OLD, OLD))
    store = opened(tmp_path)
    store.look()
    put(tmp_path, record(repeat=5))
    os.utime(run, (OLD, OLD))
    store.look()
    assert store.count(parse("")) == 2, "saved within the tick in which we looked"
    read: list[str] = []
    true = Path.read_bytes

    def reading(own: Path) -> bytes:
        read.append(own.name)
        return true(own)

    monkeypatch.setattr(Path, "read_bytes", reading)
    store.look()
    assert read == []
    runs = RunStore(tmp_path)
    runs.save(runs.folder(run.name, "evk-01", 1, warmup=False), record(repeat=1))
    store.look()
    assert read == ["record.json"], "what is known is not read again"
    assert store.count(parse("")) == 3


def test_a_damaged_record_is_named_until_it_is_healed(
    tmp_path: Path, opened: Callable[..., ProfileStore]
) -> None:
    good, bad = put(tmp_path, record()), put(tmp_path, record(repeat=1))
    whole = bad.read_text("utf-8")
    os.utime(bad.parents[2], (OLD, OLD))
    store = opened(tmp_path)
    for text, said in (
        ("{", "is damaged"),
        ("[]", "must be a JSON object"),
        ('{"schema": 9}', "9"),
    ):
        bad.write_text(text, "utf-8")
        found = store.look()
        assert [one.path for one in found] == [str(bad)]
        assert said in found[0].message
        assert store.count(parse("")) == 1
    bad.write_text(whole, "utf-8")
    assert store.look() == []
    assert store.count(parse("")) == 2
    bad.write_text("{", "utf-8")
    shutil.rmtree(bad.parent)
    assert store.look() == []
    assert good.is_file()


LOOK = """
import sys
from pathlib import Path
from fleet.profiles.store import ProfileStore
from fleet.profiles.store.select import parse
sys.stdin.readline()
with ProfileStore(Path(sys.argv[1])) as store:
    assert store.look() == []
    print(store.count(parse("")))
"""


def test_two_processes_may_look_at_once(
    tmp_path: Path, opened: Callable[..., ProfileStore]
) -> None:
    for number in range(60):
        put(tmp_path, record(run_id=f"20261101-1000{number:02d}-aaaaaa"))
    argv = [sys.executable, "-c", LOOK, str(tmp_path)]
    some = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for one in some:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    assert [one.communicate(timeout=120)[0].strip() for one in some] == ["60"] * 3
    assert [one.returncode for one in some] == [0] * 3
    assert opened(tmp_path).count(parse("")) == 60


def test_a_failed_turn_leaves_nothing_half(store: ProfileStore) -> None:
    def half() -> None:
        with database.writing(store.link):
            fill(store, *varied())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    assert store.count(parse("")) == 0
    fill(store, *varied())


@pytest.mark.parametrize(
    ("content", "said"), [(b"this is text, not a database at all" * 99, "is damaged")]
)
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x.db").write_bytes(content)
    with pytest.raises(ProfileStoreError, match=said) as caught:
        ProfileStore(tmp_path / "x.db")
    assert caught.value.hint.startswith("mv ")


def test_other_databases_and_newer_ones_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with sqlite3.connect(path) as link:
        link.execute("CREATE TABLE songs (name)")
    link.close()
    with pytest.raises(InputError, match="of another program"):
        ProfileStore(path)
    with ProfileStore(tmp_path / "y.db") as store:
        store.link.execute("PRAGMA user_version = 99")
    with pytest.raises(ProfileStoreError, match="newer version of fleet") as caught:
        ProfileStore(tmp_path / "y.db")
    assert "upgrade" in caught.value.hint
    (tmp_path / "file").touch()
    with pytest.raises(ProfileStoreError, match="a file, not a folder"):
        ProfileStore(tmp_path / "file" / "z.db")


def test_a_damaged_record_in_the_store_is_one_error(store: ProfileStore) -> None:
    fill(store, record())
    for damage in (b"", b"x", zlib.compress(b"{")):
        store.link.execute("UPDATE body SET data = ?", (damage,))
        with pytest.raises(ProfileStoreError, match="is damaged"):
            store.records(parse(""))
    assert len(store.find(parse(""))) == 1


def test_the_database_suits_a_network_folder(store: ProfileStore) -> None:
    fill(store, record())
    assert store.link.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert not list(store.path.parent.glob("*-wal"))


def test_where_the_store_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Callable[..., ProfileStore]
) -> None:
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
    assert opened().path == tmp_path / "home" / "profiles.db"
    assert opened().runs == tmp_path / "home" / "runs"
    assert opened(tmp_path / "records").path == tmp_path / "records" / "profiles.db"
    assert opened(tmp_path / "mine.sqlite").runs is None


def test_raw_files_are_kept_once(store: ProfileStore) -> None:
    first = store.raw.keep(b"abc")
    assert store.raw.keep(b"abc") == first
    store.raw.settle()
    (kept,) = (path for path in store.raw.root.rglob("*") if path.is_file())
    assert kept.read_bytes() == b"abc"
    assert [one.name for one in store.raw.root.rglob("*") if one.is_file()] == [first]
    kept.write_bytes(b"")
    assert store.raw.keep(b"abc") == first
    store.raw.settle()
    assert kept.read_bytes() == b"abc", "a file that a power cut emptied is written again"


def test_a_database_of_a_fleet_that_knew_fewer_metrics_gets_their_columns(tmp_path: Path) -> None:
    with ProfileStore(tmp_path / "a.db") as store:
        store.link.execute("ALTER TABLE record DROP COLUMN decode_ms")
    with ProfileStore(tmp_path / "a.db") as store:
        made = record(metrics=Metrics(decode_ms=7.0))
        fill(store, made)
        (row,) = store.find(parse("all"))
    assert to_plain(row)["decode_ms"] == row.metrics["decode_ms"] == 7.0
