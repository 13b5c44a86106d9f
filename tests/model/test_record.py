"""Records from plain data: schema 1 and 2, nothing else, and the key of what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fleet.model.conditions import Conditions, Sample
from fleet.model.errors import InputError
from fleet.model.plain import to_plain
from fleet.model.record import SCHEMA, Measure, Metrics, Op, Record
from tests.profiles.records import record

LOOK = Sample(
    -1.5,
    {"npu": 40.5},
    {"cpu:policy0": 1.8e9},
    load=0.5,
    uptime=900.0,
    limits={"cpu:policy0": 1.9e9},
)
WHOLE = record(
    metrics=Metrics(
        init_ms=1.5, prompt_tokens=5, prompt_tps=2.5, ttft_ms=3.5, generated_tokens=7,
        decode_tps=4.5, decode_ms=5.5,
        others={"load_us": Measure(3, "us")}, source={"x": Measure(1.5, "US")},
    ),
    ops=(Op("conv", 5, "cycles", "Conv2d", "1x2", "npu", "g"),),
    conditions=Conditions(
        LOOK, (LOOK, LOOK), LOOK, {"cpu:policy0": "performance"}, {"cpu:policy0": 2e9},
        {"usb": "online"}, "b1", "b2", 0.5, 0.004, {"cpu:policy0": 2.2e9},
    ),
    marks=("throttled",), tags=("a",), problems=("rebooted: x",), emulated=None, seconds=None,
    status=None, finish=None, artifacts={"a": "b"}, warmup=True,
)  # fmt: skip


def plain(one: Record) -> dict[str, Any]:
    return dict(json.loads(json.dumps(to_plain(one))))


def test_a_record_comes_back_as_it_was() -> None:
    assert Record.from_dict(plain(WHOLE)) == WHOLE
    assert Record.from_dict(plain(record())) == record()


def test_what_0_2_0_wrote_is_read_as_equal_and_written_as_it_was() -> None:
    text = (Path(__file__).parent / "data" / "records-0.2.0.jsonl").read_text("utf-8")
    for line, made in zip(text.splitlines(), (WHOLE, record()), strict=True):
        data = json.loads(line)
        read = Record.from_dict(data)
        assert read == replace(made, fleet="0.2.0")
        written = plain(read)
        for new, old in ((written, data), (written["metrics"], data["metrics"])):
            assert [key for key in new if key in old] == list(old)
            assert {new[key] for key in new.keys() - old.keys()} <= {None}
        written["metrics"] = {key: written["metrics"][key] for key in data["metrics"]}
        assert {key: written[key] for key in data} == data


def test_schema_1_has_less_and_is_read() -> None:
    old = plain(record())
    for key in ("ops", "conditions", "marks", "tags"):
        del old[key]
    del old["metrics"]["source"]
    for said in (1, None):
        found = Record.from_dict({**old, "schema": said})
        assert found == record()
        assert found.schema == SCHEMA, "it comes out as one of ours"
    del old["schema"]
    assert Record.from_dict(old) == record()


def test_unknown_keys_are_passed_over_at_every_level() -> None:
    data = plain(WHOLE)
    data["later"] = data["metrics"]["later"] = data["conditions"]["later"] = {"a": [1]}
    data["ops"][0]["later"] = data["conditions"]["before"]["later"] = 5
    assert Record.from_dict(data) == WHOLE


def test_a_newer_schema_is_refused() -> None:
    with pytest.raises(
        InputError, match="schema version 3, but this version of fleet reads only versions 1 to 2"
    ) as caught:
        Record.from_dict({**plain(record()), "schema": 3})
    assert "upgrade" in caught.value.hint


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("schema", 0, "schema` of the record must be a whole number"),
        ("schema", "2", "schema` of the record must be a whole number"),
        ("run_id", 5, "run_id` of the record must be text"),
        ("warmup", "yes", "warmup` of the record must be true or false"),
        ("seconds", "1,5", "seconds` of the record must be a number"),
        ("seconds", float("nan"), "seconds` of the record must be a finite number"),
        ("seconds", 10**400, "seconds` of the record must be a finite number"),
        ("status", 1.5, "status` of the record must be a whole number"),
        ("problems", "x", "problems` of the record must be a list"),
        ("argv", [1], r"argv\[0\]` of the record must be text"),
        ("env", {"a": 1}, r"env\.a` of the record must be text"),
        ("facts", [], "facts` of the record must be an object"),
        ("metrics", [], "metrics` of the record must be a JSON object"),
        ("metrics", {"ttft_ms": True}, r"metrics\.ttft_ms` of the record must be a number"),
        (
            "metrics",
            {"others": {"a": 5}},
            r"metrics\.others\.a` of the record must be a JSON object",
        ),
        (
            "metrics",
            {"source": {"a": {"unit": "us"}}},
            r"metrics\.source\.a\.value` of the record must be",
        ),
        ("ops", [{"name": "x"}], r"ops\[0\]\.value` of the record must be a number"),
        (
            "conditions",
            {"during": [{"zones": {"a": "hot"}}]},
            r"during\[0\]\.zones\.a` of the record must be",
        ),
    ],
)
def test_what_is_wrong_is_said_by_its_key(key: str, value: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Record.from_dict({**plain(WHOLE), key: value})


@pytest.mark.parametrize("key", ["run_id", "host", "metrics"])
def test_without_these_it_is_no_record(key: str) -> None:
    data = plain(WHOLE)
    del data[key]
    with pytest.raises(InputError, match=f"the record has no `{key}`"):
        Record.from_dict(data)


def test_null_is_the_same_as_not_there() -> None:
    data = plain(record(emulated=None, seconds=None, status=None, metrics=Metrics(), finish=None))
    kept = ("run_id", "host", "metrics")
    empty = {key: value if key in kept else None for key, value in data.items()}
    found = Record.from_dict(empty)
    assert replace(found, name="tiny").name == "tiny"
    assert (found.name, found.repeat, found.problems, found.facts) == ("", 0, (), {})
