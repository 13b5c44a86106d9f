"""The triage of logs alone against reported cases: the figures of docs/evidence/doctor.md."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest

from fleet.triage.triage import triage

from .measuring import DATA, Measured, cases
from .measuring import measure as measure_rows

ALL = ("reported.jsonl", "unseen1.jsonl", "unseen2.jsonl", "unseen3.jsonl")
DOC = (Path(__file__).parents[2] / "docs" / "evidence" / "doctor.md").read_text("utf-8")


@cache
def measure(name: str, *, of_device: bool = False) -> Measured:
    """Measure the cases of a file once for all tests."""
    return measure_rows(cases(name), of_device=of_device)


def test_reported_cases_are_told() -> None:
    found = measure("reported.jsonl", of_device=True)
    assert found.total == 82
    assert found.top1 >= 0.89, found.misses
    assert found.top3 >= 0.97, found.misses
    assert measure("reported.jsonl").top1 >= 0.84, "with the log alone"


@pytest.mark.parametrize("name", ALL[1:])
def test_cases_that_others_collected_are_told(name: str) -> None:
    found = measure(name, of_device=True)
    assert found.top1 >= 0.90, found.misses
    assert measure(name).top1 >= 0.77, "with the log alone"


def test_wordings_of_our_own_are_told() -> None:
    """Paraphrases written to find gaps; they show what a change breaks, not how good it is."""
    rows = [json.loads(line) for line in (DATA / "wordings.jsonl").read_text("utf-8").splitlines()]
    missed = [
        row["log"]
        for row in rows
        if row["cause"]
        not in [one.cause.id for one in triage(row["log"], of_device=True).causes][:3]
    ]
    assert len(rows) > 1000
    assert len(missed) < 0.06 * len(rows), missed


def test_the_page_says_what_is_measured() -> None:
    for name in ALL:
        found, said = measure(name), measure(name, of_device=True)
        row = f"| {100 * found.top1:.1f} % | {100 * found.top3:.1f} % | {100 * said.top1:.1f} % |"
        assert row in DOC, row


def test_confidence_is_no_boast() -> None:
    """Where the doctor is sure it is right; where it is not sure it says so."""
    every = [
        *measure("reported.jsonl").confidence,
        *measure("unseen1.jsonl").confidence,
    ]
    sure = [right for said, right in every if said >= 0.8]
    doubtful = [right for said, right in every if said < 0.5]
    assert sum(sure) / len(sure) >= 0.9
    assert sum(doubtful) / len(doubtful) < sum(sure) / len(sure)
    assert all(said <= 0.99 for said, _ in every)


def test_no_case_is_there_twice() -> None:
    rows = [row for name in ALL for row in cases(name)]
    assert len({row["id"] for row in rows}) == len(rows)
    known = re.compile(r"https://|docs/sources/field-notes\.md \d+|QNN SDK")
    assert all(known.match(row["source"]) for row in rows)
