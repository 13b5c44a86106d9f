"""The answers to a suite stand beside the speed, and a suite has no times of its own."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest
from msgspec.structs import replace

from fleet.cli import compared
from fleet.model.errors import GateError
from fleet.model.plain import to_plain
from fleet.model.record import Record
from fleet.model.suite import SuiteAnswer, SuiteResult
from fleet.profiles.compare.comparing import compare
from fleet.profiles.compare.groups import RecordGroup, group
from fleet.profiles.compare.outcome import judged_gates, require
from fleet.profiles.compare.writing import junit, suites_junit

from .made import record, repeats


def asked(passed: int, **changes: Any) -> Record:
    answers = tuple(
        SuiteAnswer(str(n), "text", faults=() if n < passed else ("empty answer",))
        for n in range(20)
    )
    return record(9, suite=SuiteResult("instruct", "a" * 64, 20, 16, answers), **changes)


def side(passed: int, rate: float) -> RecordGroup:
    return group(str(passed), [*repeats([rate + n / 100 for n in range(6)]), asked(passed)])


def test_both_are_shown_and_the_suite_is_no_run() -> None:
    a, b = side(20, 10.0), side(18, 10.4)
    assert (len(b.records), len(b.suites), b.runs) == (6, 1, 1)
    found = compare(a, b, ["decode_tps"])
    (row,) = found.answers
    assert row.text == "18 of 20 prompts of the suite instruct passed, was 20"
    assert to_plain(found)["answers"][0]["b"]["passed"] == 18
    other = replace(asked(18), suite=replace(row.b, sha256="b" * 64))
    (row,) = compare(a, group("b", [*b.records, other]), ["decode_tps"]).answers
    assert row.text.endswith("A had another suite")


def test_wrong_answers_end_a_gate() -> None:
    asked_gates = compared.gates_of(["decode_tps<-50%"])
    for passed, fails in ((16, False), (15, True)):
        found = compare(side(20, 10.0), side(passed, 10.4), ["decode_tps"])
        judged = judged_gates(found, asked_gates, strict=False)
        if not fails:
            require(found, [], strict=False)
            continue
        with pytest.raises(GateError, match=r"evk-01: 15 of 20 prompts"):
            require(found, judged, strict=False)
        failures = ET.fromstring(junit(found, judged)).findall(".//failure")
        assert any("15 of 20" in failure.get("message", "") for failure in failures)


def test_each_prompt_is_a_case() -> None:
    suite = ET.fromstring(suites_junit([asked(18), *repeats([1.0])]))[0]
    assert (suite.get("tests"), suite.get("failures")) == ("20", "2")


def test_a_record_with_answers_is_read_as_it_was_written() -> None:
    one = asked(18)
    assert Record.from_dict(to_plain(one)) == one
