"""Figures on disk after each scenario, and a run that goes on after a cut. Nothing is measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bench.keeping import Keeper, Outputs, done_of, results_of, resumed
from benchmarks.bench.stats import Result, Row
from fleet.model.plain import to_plain


def result(scenario: str, *seconds: float) -> Result:
    row = Row("fleet push", "fleet", [{"seconds": one} for one in seconds])
    return Result(scenario, f"Scenario {scenario}", row.name, [row], len(seconds))


def begun(**more: object) -> dict[str, Any]:
    machine = {"line": "Linux", "busy": False}
    fixed = {"date": "2026-01-01", "command": "it", "scale": 1.0, "rounds": 5, "push": True}
    return {**fixed, "machine": machine, "done": [], "results": [], **more}


def test_all_files_are_there_after_each_scenario(tmp_path: Path) -> None:
    figures, docs = tmp_path / "figures.json", tmp_path / "page.md"
    keeper = Keeper(begun(), Outputs(figures, docs=docs))
    keeper.whole("a", [result("a", 1.0)])
    assert json.loads(figures.read_text())["done"] == ["a"]
    assert "Scenario a" in docs.read_text()
    assert "Scenario a" in docs.with_suffix(".svg").read_text()
    keeper.partial([result("f", 6.0)])
    keeper.partial([result("f", 6.0, 7.0)])
    kept = json.loads(figures.read_text())
    assert kept["done"] == ["a"]
    assert [len(one["rows"][0]["samples"]) for one in kept["results"]] == [1, 2]
    assert "Scenario f" in docs.read_text()
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        *("figures.json", "page.md", "page.svg")
    ]


def test_a_run_goes_on_with_what_it_has_whole() -> None:
    before = Keeper(begun())
    before.whole("a", [result("a", 1.0)])
    before.whole("g", [result("g50 blob", 1.0), result("g50 trips", 1.0)])
    before.partial([result("f", 6.0)])
    now = begun(date="2026-01-02", machine={"line": "other", "busy": True})
    after = resumed(before.run, now)
    assert after["done"] == ["a", "g"]
    assert [one.scenario for one in results_of([after])] == ["a", "g50 blob", "g50 trips"]
    assert (after["date"], after["continued"]) == ("2026-01-01", ["2026-01-02"])
    assert after["machine"] == {"line": "Linux", "busy": True}
    again = resumed(after, begun(date="2026-01-03"))
    assert again["continued"] == ["2026-01-02", "2026-01-03"]


@pytest.mark.parametrize("other", [{"rounds": 2}, {"scale": 0.5}])
def test_halves_that_do_not_fit_are_refused(other: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(other))):
        resumed(begun(), begun(**other))


def test_files_from_before_there_was_a_list_are_whole() -> None:
    old = begun(results=[to_plain(result("f", 1.0)), to_plain(result("f-memory", 1.0))])
    del old["done"]
    assert done_of(old) == ["f", "m"]
    assert len(resumed(old, begun())["results"]) == 2
