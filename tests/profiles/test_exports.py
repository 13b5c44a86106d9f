"""Export: four formats, whole or not at all."""

from __future__ import annotations

import csv
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fleet.model.conditions import Conditions, Sample
from fleet.model.errors import InputError, ProfileStoreError
from fleet.model.extras import install_extra
from fleet.model.plain import to_plain
from fleet.model.record import Measure, Metrics, Op
from fleet.profiles.exports import CYCLES, LAID, export
from fleet.profiles.store import ProfileStore
from fleet.profiles.store.rows import insert
from fleet.profiles.store.select import parse
from tests.profiles.records import record

OTHERS = {"load_us": Measure(5.5, "us"), "peak": Measure(7, "MB"), "count": Measure(2)}
FIRST = record(
    metrics=Metrics(prompt_tokens=5, ttft_ms=1.25, others=OTHERS),
    conditions=Conditions(Sample(-1, {"cpu": 41.5, "npu": 44.0}), (), Sample(9, {"x": 60})),
    tags=("b", "a"),
)  # fmt: skip
SECOND = replace(
    record(host='x,"y"\nz', emulated=None, started="2026-11-02T10:00:00Z", problems=("cut: x",)),
    ops=(Op("conv", 300, "cycles", graph="g"), Op("relu", 100, "cycles", graph="g"),
         Op("add", 2.5, "ms", kind="Add", shape="1x4", ran_on="cpu", graph="h")),
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    with ProfileStore(tmp_path / "x.db") as made:
        for one in (FIRST, SECOND):
            insert(made.link, one, {**to_plain(one), "later": 1}, "")
        yield made


def test_json_lines_are_the_plain_data(store: ProfileStore, tmp_path: Path) -> None:
    target = tmp_path / "x.jsonl"
    assert export(store, parse(""), target) == 2
    first, second = map(json.loads, target.read_text("utf-8").splitlines())
    assert first == {**json.loads(json.dumps(to_plain(FIRST))), "later": 1, "tags": ["a", "b"]}
    assert second["ops"][2]["ran_on"] == "cpu"


def test_csv_is_one_row_a_record_with_units_in_names(store: ProfileStore, tmp_path: Path) -> None:
    target = tmp_path / "x.csv"
    assert export(store, parse(""), target) == 2
    with target.open(encoding="utf-8", newline="") as stream:
        first, second = csv.DictReader(stream)
    wanted = {
        "host": "evk-01", "prompt_tokens": "5", "ttft_ms": "1.25", "emulated": "True",
        "decode_tokens_per_second": "", "other_load_us": "5.5", "other_peak_mb": "7",
        "other_count": "2", "hottest_before_celsius": "44.0", "hottest_after_celsius": "60",
        "tags": "a b", "chip": "QCS9075", "runtime_build": "2.51.0.260929181845",
    }  # fmt: skip
    assert {name: first[name] for name in wanted} == wanted
    assert (second["host"], second["emulated"], second["problems"]) == ('x,"y"\nz', "", "cut: x")
    assert second["other_load_us"] == ""


def test_parquet_has_the_same_columns_with_types(store: ProfileStore, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    target = tmp_path / "x.parquet"
    assert export(store, parse(""), target) == 2
    table: Any = importlib.import_module("pyarrow.parquet").read_table(target)
    rows = table.to_pylist()
    assert rows[0]["prompt_tokens"] == 5
    assert rows[0]["other_peak_mb"] == 7.0
    assert [row["emulated"] for row in rows] == [True, None]
    assert str(table.schema.field("ttft_ms").type) == "double"
    assert str(table.schema.field("repeat").type) == "int64"
    export(store, parse(""), tmp_path / "x.csv")
    head = (tmp_path / "x.csv").read_text("utf-8").splitlines()[0]
    assert table.column_names == head.split(",")


def test_parquet_without_pyarrow_says_what_to_install(
    store: ProfileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="pyarrow to write Parquet") as caught:
        export(store, parse(""), tmp_path / "x.parquet")
    assert caught.value.hint == f"{install_extra('parquet')}; or --format csv"
    assert not list(tmp_path.glob("x.parquet*"))


def spans(path: Path) -> list[tuple[str, int, float, float]]:
    data = json.loads(path.read_text("utf-8"))
    return [
        (one["name"], one["tid"], one["ts"], one["dur"])
        for one in data["traceEvents"] if one["ph"] == "X"
    ]  # fmt: skip


def test_a_trace_lays_operations_and_says_so(store: ProfileStore, tmp_path: Path) -> None:
    target = tmp_path / "x.trace"
    assert export(store, parse(""), target) == 1, "one record contains operations"
    assert spans(target) == [
        ("conv", 1, 0.0, 300.0), ("relu", 1, 300.0, 100.0), ("add", 2, 0.0, 2500.0)
    ]  # fmt: skip
    data = json.loads(target.read_text("utf-8"))
    assert data["otherData"]["notes"] == [LAID, CYCLES]
    names = [one["args"]["name"] for one in data["traceEvents"] if one["ph"] == "M"]
    assert names[0].endswith("(emulated: unknown)")
    assert names[1:] == ["graph g", "graph h"]


def test_a_clock_makes_cycles_a_time(store: ProfileStore, tmp_path: Path) -> None:
    target = tmp_path / "x.json"
    export(store, parse(""), target, clock_hz=2e9)
    assert spans(target)[0] == ("conv", 1, 0.0, 0.15)
    notes = json.loads(target.read_text("utf-8"))["otherData"]["notes"]
    assert "time computed from cycles at 2000 MHz" in notes
    assert CYCLES not in notes


def test_what_cannot_be_exported(store: ProfileStore, tmp_path: Path) -> None:
    for name, text, said in (
        ("x.txt", "", "does not say which format"),
        ("x.csv", "host:none", "no stored result matches"),
        ("x.trace", "host:evk-01", "contains operations"),
    ):
        with pytest.raises(InputError, match=said):
            export(store, parse(text), tmp_path / name)
    with pytest.raises(ProfileStoreError, match="cannot write"):
        export(store, parse(""), tmp_path / "none" / "x.csv")
    assert {one.name for one in tmp_path.iterdir()} == {"x.db"}


def test_a_file_that_is_there_stays_when_the_export_fails(
    store: ProfileStore, tmp_path: Path
) -> None:
    target = tmp_path / "x.trace"
    target.write_text("old")
    with pytest.raises(InputError):
        export(store, parse("host:evk-01"), target)
    assert target.read_text() == "old"
    export(store, parse(""), target)
    assert target.read_text().startswith("{")
    assert not list(tmp_path.glob("*.part"))


def test_a_reference_is_exported_too(store: ProfileStore, tmp_path: Path) -> None:
    target = tmp_path / "x"
    assert export(store, parse("reference:nemotron-iq9075"), target, "csv") == 1
    with target.open(encoding="utf-8", newline="") as stream:
        row = next(csv.DictReader(stream))
    assert (row["init_ms"], row["ttft_ms"], row["decode_ms"]) == ("4060", "183.5", "3090")
