"""No promise is without a proof, and no proof is only a name."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.mutants import Mutant
from tests.mutants import load as load_mutants

from .promises import ROOT, Promise, load, page

WANTED = {"T": 11, "R": 6, "D": 7, "S": 6, "L": 6, "H": 7, "V": 6}
MUTANTS = load_mutants()
PROMISES = [one for rows in load().values() for one in rows]


@cache
def found_in(path: Path) -> dict[str, bool]:
    """Name of each test of a file → True when all of it is slow."""
    tree = ast.parse(path.read_text("utf-8"))
    module = any(
        isinstance(one, ast.Assign)
        and "pytestmark" in {ast.unparse(target) for target in one.targets}
        and "mark.slow" in ast.unparse(one.value)
        for one in tree.body
    )
    return {
        one.name: module or any(ast.unparse(mark) == "pytest.mark.slow" for mark in
                                one.decorator_list)
        for one in tree.body
        if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")
    }  # fmt: skip


def test_every_promise_is_there_once() -> None:
    assert [one.id for one in PROMISES] == [
        f"{letter}{number}" for letter, count in WANTED.items() for number in range(1, count + 1)
    ]


@pytest.mark.parametrize("one", PROMISES, ids=lambda one: one.id)
def test_it_has_a_proof_that_exists(one: Promise) -> None:
    assert one.promise.endswith(".")
    assert one.fast, "each one is proven with every change, however small the proof"
    for slow, names in ((False, one.fast), (True, one.slow)):
        for name in names:
            path, _, test = name.partition("::")
            known = found_in(ROOT / path)
            assert test in known, f"{one.id}: there is no {name}"
            assert known[test] == slow, f"{one.id}: {name} stands in the wrong tier"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_a_mutant_is_of_code_that_is_there_and_runs_tests_that_exist(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text("utf-8").count(mutant.old) == 1
    assert mutant.promise in {one.id for one in PROMISES}
    for name in mutant.tests:
        path, _, test = name.partition("::")
        assert not test or test.partition("[")[0] in found_in(ROOT / path), name


def test_the_search_can_fail() -> None:
    known = found_in(ROOT / "tests" / "vm" / "test_machine.py")
    assert known["test_where_udev_cannot_a_reboot_is_stated_and_made"]
    here = found_in(Path(__file__))
    assert not here["test_the_search_can_fail"]
    assert "found_in" not in here


def test_the_page_is_made_from_the_file() -> None:
    assert (ROOT / "docs" / "promises.md").read_text("utf-8") == page(load()), (
        "python -m tests.docs.promises docs/promises.md"
    )
