"""Gates of the command line stand in for those of the playbook."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fleet.cli.run import RunFlags, changed, gated, measured
from fleet.model.errors import InputError
from fleet.model.gates import CoolSpec, UntilSpec
from fleet.model.playbook import Playbook, RunSpec

BOOK = Playbook(Path("p.yaml"), "n", Path("b"), run=RunSpec(prompt="a"))


def flags(
    cool: str | None = None, until: str | None = None, sustained: str | None = None
) -> RunFlags:
    return RunFlags(cool_below=cool, until=until, sustained=sustained)


def run(book: Playbook, *gates: str | None) -> RunSpec:
    found = gated(book, flags(*gates))
    assert found.run is not None
    return found.run


def test_each_gate() -> None:
    assert run(BOOK, None, None, None) == BOOK.run
    assert run(BOOK, "45C", None, None).cool == CoolSpec(45.0)
    assert run(BOOK, None, "3%", None).until == UntilSpec(0.03)
    assert run(BOOK, None, None, "10m").sustained == 600.0


def test_the_rest_of_the_playbooks_gate_stays() -> None:
    own = RunSpec(cool=CoolSpec(40.0, "ddr", 9.0, "go on"), until=UntilSpec(0.1, "ttft_ms", 5))
    found = run(replace(BOOK, run=own), "45C", "3%", None)
    assert found.cool == CoolSpec(45.0, "ddr", 9.0, "go on")
    assert found.until == UntilSpec(0.03, "ttft_ms", 5)


def test_the_last_word_on_the_end_of_a_series() -> None:
    until = replace(BOOK, run=RunSpec(until=UntilSpec(0.1)))
    assert (run(until, None, None, "1m").until, run(until, None, None, "1m").sustained) == (
        None,
        60.0,
    )
    held = replace(BOOK, run=RunSpec(sustained=60.0))
    assert run(held, None, "3%", None).sustained is None


def test_refused() -> None:
    for gates, words in (
        ((None, "3%", "10m"), "--until and --sustained cannot be combined"),
        (("warm", None, None), "not a temperature"),
        ((None, "3", None), "not a percentage"),
        ((None, None, "soon"), "not a duration"),
    ):
        with pytest.raises(InputError, match=words):
            run(BOOK, *gates)
    many = replace(BOOK, run=RunSpec(until=UntilSpec(0.1, at_most=5)))
    with pytest.raises(InputError, match="allows 5 runs, but --repeats asks for 9"):
        gated(changed(many, {"repeats": 9}), flags())


def test_a_playbook_that_runs_nothing_stays_so() -> None:
    none = replace(BOOK, run=None)
    assert gated(changed(none, {"repeats": 3}), flags("45C")) == none


def test_what_nobody_said_is_enough_for_an_interval() -> None:
    given: dict[str, object] = {"repeats": None, "warmups": None}
    own = {"repeats": 5, "warmups": 2, "settle": 2}
    assert measured(BOOK, given, sustained=False) == own
    assert measured(BOOK, given, sustained=True) == own | {"repeats": None}
    assert measured(BOOK, {"repeats": 3, "warmups": 0}, sustained=False) == {
        "repeats": 3, "warmups": 0
    }  # fmt: skip
    said = replace(BOOK, run=RunSpec(unsaid=()))
    assert measured(said, given, sustained=False) == given
