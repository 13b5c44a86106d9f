"""docs/promises.yaml as a page: python -m tests.docs.promises docs/promises.md"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests import mutants
from tests.faults import stopping
from tests.tiers import gate

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "docs" / "promises.yaml"
HEAD = """# Promises

What `fleet` promises, and the tests that prove each promise. No figure and no proof here comes
from hardware: boards are [lab boards](lab.md) with a real sshd and a real adbd, links that break
are a proxy of the tests, a power cut is that of an emulated machine ([platforms](platforms.md)).
Where a proof ends is said below it. Tests marked *slow* run with `make test-slow`, those
marked *gate* with `make test-gate`, all others with `make test`; a change lands after the last two.

This page is made from [promises.yaml](promises.yaml); a test checks that no promise is without
a proof and that every test named here exists.
"""

COUNTS = """## How often it was tried

On lab boards and in folders of one busy machine. Links cut, workstations killed, black holes,
passwords said back and repaired stores were run again on 2026-11-25, in full, after boards got
one control channel (`pytest -m slow` of tests/faults/test_interrupted.py, test_holes.py,
tests/engine/test_echoed.py, test_fsck.py); the others until 2026-11-23.

| what | tier, each time | tier, at full count | so far |
|---|---|---|---|
| a push, its link cut at a random byte in either direction | gate: 3 | slow: 200 | \
200, and 200 before |
| a push, its workstation killed at a random moment | gate: 2 | slow: 100 | 100, and 192 before |
| a deploy into a black hole, with the constants that ship | gate: 2 | slow: 20 | \
20, and 20 before |
| trees of hostile names, links of others in the way: Python, Windows form | gate: 25 of each, \
by each login | by hand: `FLEET_HOSTILE_TREES=2000` | 2,000 as root, 2,000 as nobody |
| the same, sh (dash, bash, busybox, mksh) | gate: 25 of each, by each login | \
by hand: `FLEET_HOSTILE_TREES=2000` | 4,000 as root, 2,000 as nobody, most of them by dash |
| pushes of such trees | gate: 4 by each login | by hand: `FLEET_HOSTILE_PUSHES=50` | \
50 as root, 50 as an ordinary user |
| generated passwords, through all ways out | gate: 1,000 | | 1,000 |
| generated passwords, said back by a board | fast: 5 | slow: 1,000 | 1,000, and 1,000 before |
| damaged stores, found | gate: 50 | | 50 |
| damaged stores, repaired, each by Python and sh | gate: 4 | slow: 50 | 50 by each, twice |
| random states of a board with real udev, a kernel of its own: plan = apply, nothing left | | \
slow: 200 | 200 (seeds 0 to 9; 0, 1, 2 and 4 before the two faults that 3 and 5 found were mended) |
| a store of 10 GB hashed by fsck, speed beside `sha256sum` alone | | \
by hand: `python -m benchmarks.fsck --gib 9.4` | \
sh 0.83, Python 2.22; by processor time 0.95 and 2.42 |

Two of these found something, mended since. Hostile trees: sh took a link in the store for a blob
of its size (tree 219 of seed 22). Random states: a group that was made after udevd had read its
rules did not count (state 17 of seed 3); rules started a unit that was to be stopped (state 14 of
seed 5).
"""


@dataclass(frozen=True)
class Promise:
    """One promise: tests are node ids (`path::name`), `limits` says where the proof ends."""

    id: str
    promise: str
    fast: tuple[str, ...]
    slow: tuple[str, ...] = ()
    limits: str = ""


def load(path: Path = SOURCE) -> dict[str, list[Promise]]:
    """Group → promises, in the order of the file. Unknown keys are a TypeError."""
    data = yaml.safe_load(path.read_text("utf-8"))
    return {group: [_promise(row) for row in rows] for group, rows in data.items()}


def _promise(row: dict[str, Any]) -> Promise:
    lists = {key: tuple(value) for key, value in row.items() if isinstance(value, list)}
    return Promise(**{**row, **lists})


def page(groups: dict[str, list[Promise]]) -> str:
    """The whole page."""
    parts = [HEAD]
    for group, rows in groups.items():
        parts.append(f"## {group}\n")
        for one in rows:
            parts.append(f"**{one.id}.** {one.promise}\n")
            if one.limits:
                parts.append(f"*Limits:* {one.limits}\n")
            tests = [f"- `{name}`" + " *gate*" * (name in gate()) for name in one.fast] + [
                f"- `{n}` *slow*" for n in one.slow
            ]
            parts.append("\n".join(tests) + "\n")
    return "\n".join([*parts, COUNTS, stopping.page(), mutants.page(mutants.load())])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(load()), "utf-8")
