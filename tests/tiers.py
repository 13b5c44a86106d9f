"""Which tests `make test` leaves to the gate: those that take long, by measurement.

`make test` is for whoever changes something, `make test-gate` runs the rest of what lands a change
(`.ci/run` runs both), `make test-slow` is opt-in. The list is tests/gate.txt; after
`pytest --junitxml=FILE`, `python -m tests.tiers FILE` makes it anew.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "gate.txt"
LONGEST_SECONDS = 2.0  # of one case
TOGETHER_SECONDS = 15.0  # of all cases of one function


@cache
def gate() -> frozenset[str]:
    """Test functions of the gate, as `tests/room/test_x.py::test_y`."""
    lines = LIST.read_text("utf-8").splitlines()
    return frozenset(line for line in lines if not line.startswith("#"))


def function_of(node_id: str) -> str:
    """The test function of a node id: without its parameters."""
    return node_id.partition("[")[0]


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
