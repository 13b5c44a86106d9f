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

This page lists what `fleet` promises and the tests that prove each promise. To run them:

```sh
make test         # fast tests
make test-gate    # gate tests
make test-slow    # slow tests
```

No proof comes from hardware. Boards are [lab boards](lab.md) with a real sshd and adbd, broken
links come from a proxy, and power cuts are those of an emulated machine
([platforms](platforms.md)). The limits of a proof are below it. The page is generated from
[promises.yaml](promises.yaml), which names every test.
"""

COUNTS = """## Number of trials

| what | tier, trials | in full |
|---|---|---|
| a push whose link breaks at a random byte | gate: 3 | slow: 200 |
| a push whose workstation is killed at a random moment | gate: 2 | slow: 100 |
| a deploy into a black hole | gate: 2 | slow: 20 |
| trees of hostile names and links | gate: 25 by each login | `FLEET_HOSTILE_TREES=2000` |
| pushes of such trees | gate: 4 by each login | `FLEET_HOSTILE_PUSHES=50` |
| generated passwords, through all outputs | gate: 1,000 | |
| generated passwords, repeated by a board | fast: 5 | slow: 1,000 |
| damaged stores, found; repaired by Python and sh | gate: 50; 4 each | slow: 50 |
| random states of a board with real udev: plan = apply | | slow: 200 |
| a store of 10 GB verified by fsck | | `python -m benchmarks.fsck --gib 9.4` |
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


def _tests(one: Promise) -> str:
    """Return the numbers of tests by tier, and the folders that hold them."""
    gated = sum(name in gate() for name in one.fast)
    counts = {"fast": len(one.fast) - gated, "gate": gated, "slow": len(one.slow)}
    folders = sorted({name.split("/")[1] for name in (*one.fast, *one.slow)})
    numbers = ", ".join(f"{number} {tier}" for tier, number in counts.items() if number)
    return f"{numbers}; {', '.join(f'`tests/{folder}`' for folder in folders)}"


def page(groups: dict[str, list[Promise]]) -> str:
    """The whole page."""
    parts = [HEAD]
    for group, rows in groups.items():
        parts.append(f"## {group}\n")
        for one in rows:
            parts.append(f"**{one.id}.** {one.promise}\n")
            if one.limits:
                parts.append(f"*Limits:* {one.limits}\n")
            parts.append(f"*Tests:* {_tests(one)}.\n")
    return "\n".join([*parts, COUNTS, stopping.page(), mutants.page(mutants.load())])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(load()), "utf-8")
