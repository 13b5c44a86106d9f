"""Records out of files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.model.errors import InputError
from fleet.model.plain import to_plain
from fleet.model.record import Record
from fleet.profiles.runs import read_records

from .compare.made import op, repeats, save
from .compare.made import record as made


def test_the_same_record_comes_back(tmp_path: Path) -> None:
    whole = repeats([10.0, None], ops=(op("a", 1.5),), marks=("throttled",), tags=("x",))
    assert read_records(save(tmp_path / "a.jsonl", whole)) == whole
    folder = tmp_path / "run" / "evk" / "0"
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(json.dumps(to_plain(whole[0]), indent=1))
    assert read_records(tmp_path / "run") == whole[:1]
    (tmp_path / "list.json").write_text(json.dumps([to_plain(one) for one in whole]))
    assert read_records(tmp_path / "list.json") == whole


def test_a_record_of_schema_one() -> None:
    data = to_plain(made())
    for name in ("ops", "conditions", "marks", "tags"):
        del data[name]
    del data["metrics"]["source"]
    old = Record.from_dict(data | {"schema": 1})
    assert (old.ops, old.marks, old.conditions.before) == ((), (), None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "the record has no `run_id`"),
        ("[1]", "must be a JSON object"),
        ('{"run_id": "r", "host": "h", "metrics": {"ttft_ms": "x"}}', "metrics.ttft_ms"),
        (
            '{"schema": 9, "metrics": {}}',
            "schema version 9, but this version of fleet reads only versions 1 to 2",
        ),
        ('{"a": 1}\n{"a"', "line 1 of "),
        ("", "no result"),
    ],
)
def test_what_is_no_record_is_named(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"a\.json") as caught:
        read_records(path)
    assert said in caught.value.message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_records(tmp_path / "none.json")
    (tmp_path / "x.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot read"):
        read_records(tmp_path / "x.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no record\.json"):
        read_records(tmp_path / "empty")
