"""The schema of a record: made from the Structs, true of records."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator, ValidationError
from msgspec import Struct

from fleet.config.schema import schema
from fleet.model.record import Metrics, Record
from tests.model.test_record import WHOLE, plain
from tests.profiles.records import record

CHECK = Draft202012Validator(schema("record"))


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(schema("record"))


def test_records_are_valid_and_damaged_ones_are_not() -> None:
    for one in (WHOLE, record()):
        CHECK.validate(plain(one))
    CHECK.validate({**plain(record()), "later": 5})
    for key, value in (("schema", 3), ("repeat", "x"), ("metrics", {"ttft_ms": "1"}), ("ops", [1])):
        with pytest.raises(ValidationError):
            CHECK.validate({**plain(record()), key: value})


@pytest.mark.parametrize("kind", [Record, Metrics])
def test_every_key_is_described(kind: type[Struct]) -> None:
    body = schema("record")
    node = body if kind is Record else body["$defs"]["Metrics"]
    for name in kind.__struct_fields__:
        assert node["properties"][name]["description"].endswith("."), name
