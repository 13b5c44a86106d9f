"""Import: files, folders, exports; all or nothing a file, once, bad ones named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.model.errors import InputError
from fleet.model.plain import to_plain
from fleet.profiles import imports
from fleet.profiles.exports import export
from fleet.profiles.formats import detect
from fleet.profiles.imports import Importer, Labels
from fleet.profiles.store import ProfileStore
from fleet.profiles.store.rows import insert
from fleet.profiles.store.select import parse
from tests.profiles.records import put, record

DATA = Path(__file__).parent / "data"
CSVS = sorted(DATA.glob("*.csv"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    with ProfileStore(tmp_path / "x.db") as made:
        yield made


def test_the_samples_with_what_nobody_says_unknown(store: ProfileStore) -> None:
    done = Importer(store).take([DATA])
    assert (done.files, done.new, done.known) == (9, 7, 0)
    logs = ["net_run_client.log", "prof_basic_qnn.log"]
    assert [Path(bad.path).name for bad in done.bad] == logs
    assert all(bad.hint.startswith("qnn-profile-viewer") for bad in done.bad)
    found = store.records(parse("last"))
    assert len(found) == 7, "the files of one folder are one run"
    assert {(one.host, one.name, one.emulated, one.seconds, one.status) for one in found} == {
        ("", "", None, None, None)
    }
    assert sorted(one.repeat for one in found) == list(range(7))
    genie = next(one for one in found if one.origin["imported"] == "genie_dialog.json")
    assert genie.runner == "genie"
    assert genie.metrics.ttft_ms == pytest.approx(75.342)
    assert genie.counts
    traced = next(one for one in found if one.origin["imported"] == "prof_optrace.csv")
    assert [op.value for op in traced.ops] == [5854, 23659, 0, 307893, 23039, 1729]


def raw_of(store: ProfileStore, record_id: int) -> dict[str, str]:
    sql = "SELECT name, sha256 FROM raw WHERE record = ? ORDER BY name"
    return dict(store.link.execute(sql, (record_id,)).fetchall())


def test_what_the_user_says(store: ProfileStore) -> None:
    labels = Labels("evk-07", "tiny", ("pilot",), emulated=False)
    Importer(store, labels).take([DATA / "genie_dialog.json"])
    row = store.find(parse("tag:pilot,host:evk-07,name:tiny,emulated:no"))[0]
    assert row.tags == ("pilot",)
    raw = raw_of(store, row.id)
    assert list(raw) == ["genie_dialog.json"]
    (sha256,) = raw.values()
    kept = store.raw.root / sha256[:2] / sha256
    assert kept.read_bytes() == (DATA / "genie_dialog.json").read_bytes()
    with pytest.raises(InputError, match="is not a tag name"):
        Importer(store, Labels(tags=("a b",)))


def test_importing_again_changes_nothing(store: ProfileStore, tmp_path: Path) -> None:
    put(tmp_path / "runs", record())
    paths = [DATA, tmp_path / "runs"]
    first = Importer(store).take(paths)
    before = (store.count(parse("")), sorted(store.raw.root.rglob("*")))
    again = Importer(store, Labels(host="other")).take(paths)
    assert (again.new, again.known) == (0, first.new)
    assert (store.count(parse("")), sorted(store.raw.root.rglob("*"))) == before


def test_an_export_is_imported_elsewhere_and_at_home(store: ProfileStore, tmp_path: Path) -> None:
    put(tmp_path / "runs", record(tags=("a",)))
    Importer(store).take([tmp_path / "runs", *CSVS])
    store.tag(parse(""), "moved")
    target = tmp_path / "all.jsonl"
    assert export(store, parse(""), target) == 6
    assert Importer(store).take([target]).known == 6
    with ProfileStore(tmp_path / "y.db") as other:
        assert Importer(other).take([target]).new == 6
        assert other.records(parse("tag:moved")) == store.records(parse("tag:moved"))
        assert Importer(other).take(CSVS).known == 5, "the files that the records were made of"


def test_what_lies_beside_a_record_belongs_to_it(store: ProfileStore, tmp_path: Path) -> None:
    path = put(tmp_path / "runs", record())
    (path.parent / "profile.json").write_bytes((DATA / "genie_dialog.json").read_bytes())
    (path.parent / "output").mkdir()
    (path.parent / "output" / "x.log").write_bytes(b"\0")
    (path.parents[2] / "journal.jsonl").write_text('{"event": "x"}\n{"event": "y"}\n')
    done = Importer(store).take([tmp_path / "runs"])
    assert (done.new, len(done.skipped), done.bad) == (1, 1, [])
    row = store.find(parse(""))[0]
    assert list(raw_of(store, row.id)) == ["output/x.log", "profile.json"]


def test_bad_files_do_not_hold_up_the_good_ones(store: ProfileStore, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    good = json.dumps(to_plain(record()))
    files = {
        "a.csv": (DATA / "ctx_basic.csv").read_bytes()[:-20],
        "b.json": b'{"components": [',
        "c.jsonl": f'{good}\n{{"run_id": "r"}}\n'.encode(),
        "d.json": json.dumps({**to_plain(record()), "schema": 3}).encode(),
        "notes.txt": b"nothing to see\n",
        "z.csv": (DATA / "ctx_basic.csv").read_bytes(),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    done = Importer(store).take([folder])
    assert [Path(one.path).name for one in done.bad] == ["a.csv", "b.json", "c.jsonl", "d.json"]
    assert "truncated" in done.bad[0].message
    assert done.bad[2].message.startswith("record 2: the record has no `host`")
    assert "version 3" in done.bad[3].message
    assert (done.new, len(done.skipped)) == (1, 1), "no record of a file with a bad one is in"
    named = Importer(store).take([folder / "notes.txt"])
    assert "in no profile format that fleet knows" in named.bad[0].message, "it was named itself"
    with pytest.raises(InputError, match="does not exist"):
        Importer(store).take([tmp_path / "none"])


def test_pipes_and_giants_are_passed_by(
    store: ProfileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "a.csv").write_bytes((DATA / "ctx_basic.csv").read_bytes())
    (folder / "big.csv").write_bytes(b"x" * 5000)
    monkeypatch.setattr(detect, "MOST_BYTES", 4000)
    done = Importer(store).take([folder])
    assert (done.new, len(done.skipped), done.bad) == (1, 2, [])
    named = Importer(store).take([folder / "pipe", folder / "big.csv"])
    assert ["a pipe" in named.bad[0].message, "5000 bytes" in named.bad[1].message] == [True] * 2


def test_a_folder_that_cannot_be_listed_is_bad(
    store: ProfileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = os.scandir

    def scandir(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return true(path)

    (tmp_path / "in" / "closed").mkdir(parents=True)
    monkeypatch.setattr(os, "scandir", scandir)
    done = Importer(store).take([tmp_path / "in"])
    assert [(Path(one.path).name, one.message) for one in done.bad] == [
        ("closed", "Permission denied")
    ]


KILLED = """
import os, sys
from pathlib import Path
from fleet.profiles import imports
from fleet.profiles.store import ProfileStore
imports.TURN = 10
def seen(done, of):
    if done >= 20:
        os._exit(9)
imports.Importer(ProfileStore(Path(sys.argv[1]))).take([Path(sys.argv[2])], seen)
"""


def test_an_import_that_was_killed_is_gone_on_with(store: ProfileStore, tmp_path: Path) -> None:
    for number in range(35):
        put(tmp_path / "runs", record(run_id=f"20261101-1000{number:02d}-aaaaaa"))
    argv = [sys.executable, "-c", KILLED, str(store.path), str(tmp_path / "runs")]
    assert subprocess.run(argv, check=False, timeout=60).returncode == 9
    assert store.count(parse("")) == 20
    done = Importer(store).take([tmp_path / "runs"])
    assert (done.new, done.known) == (15, 20)


def test_a_turn_that_fails_is_not_in(store: ProfileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def failing(*args: Any) -> int:
        calls.append(args)
        if len(calls) == 3:
            raise ZeroDivisionError
        return insert(*args)

    monkeypatch.setattr(imports, "insert", failing)
    with pytest.raises(ZeroDivisionError):
        Importer(store).take(CSVS)
    assert store.count(parse("")) == 0


def test_progress_is_told(store: ProfileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "TURN", 2)
    told: list[tuple[int, int]] = []
    Importer(store).take(CSVS, lambda done, of: told.append((done, of)))
    assert told == [(2, 5), (4, 5), (5, 5)]


def test_each_row_of_a_file_is_stored(store: ProfileStore, tmp_path: Path) -> None:
    path = tmp_path / "bench.md"
    rows = [(1, "pp64", 3.5), (2, "pp64", 6.5), (4, "tg16", 2.25)]
    path.write_text(
        "| model | backend | threads | test | t/s |\n| - | - | -: | - | -: |\n"
        + "".join(f"| m | CPU | {n} | {test} | {rate} ± 0.1 |\n" for n, test, rate in rows)
    )
    done = Importer(store).take([path])
    assert (done.new, done.known) == (3, 0)
    assert (again := Importer(store).take([path])).new == 0
    assert again.known == 3
    assert sorted(one.marks[0] for one in store.records(parse("all"))) == [
        "m, pp64, 1 thread",
        "m, pp64, 2 threads",
        "m, tg16, 4 threads",
    ]


def test_a_folder_without_profiles_is_not_empty_handed(store: ProfileStore, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "notes.txt").write_text("nothing that was measured\n")
    done = Importer(store).take([folder])
    assert done.is_empty
    assert [(Path(file.path).name, file.unknown) for file in done.skipped] == [("notes.txt", True)]
