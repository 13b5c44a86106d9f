"""What the examples measure can be judged: as many repeats as a comparison asks for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleet.config import scaffold
from fleet.model.gates import LEAST_REPEATS
from fleet.profiles.stats.difference import difference

ROOT = Path(__file__).parents[2]
PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yaml"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
REPEATS = re.compile(r"(?m)^[^#`\n]*?\brepeats: (\d+)")


def test_the_fewest_repeats_are_what_a_comparison_takes() -> None:
    high = [10.0 + n * 7 % 5 / 100 for n in range(1, LEAST_REPEATS + 1)]
    low = [one / 2 for one in high]
    assert difference([high], [low]).how == "values"
    few = difference([high[1:]], [low[1:]])
    assert few.why == (f"too few runs: {LEAST_REPEATS - 1}, but an interval needs {LEAST_REPEATS}")


@pytest.mark.parametrize("path", [*PLAYBOOKS, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_copied_from_here_can_be_judged(path: Path) -> None:
    found = [int(one) for one in REPEATS.findall(path.read_text("utf-8"))]
    assert all(one >= LEAST_REPEATS for one in found), found


def test_there_are_such_examples() -> None:
    named = [one.name for one in PAGES if REPEATS.search(one.read_text("utf-8"))]
    assert {"README.md", "playbook.md", "measuring.md"} <= set(named)


def test_the_playbook_of_init_can_be_judged() -> None:
    (found,) = REPEATS.findall(Path(scaffold.__file__).read_text("utf-8"))
    assert int(found) >= LEAST_REPEATS
