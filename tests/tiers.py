"""The tiers of the tests: which ones `make test` leaves to the gate.

`make test` is for whoever changes something, `make test-gate` runs the rest of what lands a change
(`.ci/run` runs both), `make test-slow` is opt-in. The gate has the tests that take long, listed in
tests/gate.txt by measurement, and every case that needs another shell than the `sh` of the machine.
After `pytest --junitxml=FILE`, `python -m tests.tiers FILE` writes the list again.
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "gate.txt"
LONGEST_SECONDS = 2.0  # of one case
TOGETHER_SECONDS = 15.0  # of all cases of one function


SHELLS = frozenset({"bash", "busybox", "fish", "ksh", "mksh", "toybox", "zsh"})


@cache
def gate() -> frozenset[str]:
    """Test functions of the gate, as `tests/room/test_x.py::test_y`."""
    lines = LIST.read_text("utf-8").splitlines()
    return frozenset(line for line in lines if not line.startswith("#"))


def function_of(node_id: str) -> str:
    """The test function of a node id: without its parameters."""
    return node_id.partition("[")[0]


def words_of(item: pytest.Item) -> set[str]:
    """Return the words of the parameters of a case: `busybox+tar` has two of them."""
    spec = getattr(item, "callspec", None)
    found: set[str] = set()
    left = list(spec.params.values()) if spec else []
    while left:
        match left.pop():
            case str() as text:
                found.update(re.split(r"[+ :]", text))
            case tuple() | list() as values:
                left += values
    return found


def shells_of(item: pytest.Item) -> set[str]:
    """Return the shells of this machine that a case names in its parameters."""
    return words_of(item) & SHELLS


def is_gate(item: pytest.Item) -> bool:
    """Tell whether a case is of the gate: it takes long, or it needs another shell."""
    names = {word.partition("-")[0] for word in words_of(item)}
    return function_of(item.nodeid) in gate() or bool(names & SHELLS)


def long_ones(report: Path) -> list[str]:
    """The functions of a JUnit report that take long."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for case in ET.parse(report).getroot().iter("testcase"):
        path = (case.get("classname") or "").replace(".", "/")
        name = function_of(case.get("name") or "")
        if (ROOT / f"{path}.py").is_file():
            seconds[f"{path}.py::{name}"].append(float(case.get("time") or 0))
    return sorted(
        name
        for name, every in seconds.items()
        if max(every) >= LONGEST_SECONDS or sum(every) >= TOGETHER_SECONDS
    )


if __name__ == "__main__":
    head = "# Tests that `make test-gate` runs. Made by python -m tests.tiers FILE."
    LIST.write_text("\n".join([head, *long_ones(Path(sys.argv[1]))]) + "\n", "utf-8")
