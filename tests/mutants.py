"""Does a proof fail without what it proves? python -m tests.mutants [ID ...]

Each mutant of docs/mutants.yaml takes one line out of the code behind a promise and runs tests of
that promise in a copy of the tree; one that no test notices survives. Minutes in all: a part of no
tier. What the file says of each is in docs/promises.md; exit code 1 where it is not so.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "docs" / "mutants.yaml"
COPIED = ("fleet", "tests", "assets", "playbooks", "inventories", "docs", "pyproject.toml")
SECONDS = 600.0


@dataclass(frozen=True)
class Mutant:
    """`old` of `file`, there once, becomes `new`; `tests` are those that may notice."""

    id: str
    promise: str
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    survived: bool


def load(path: Path = SOURCE) -> list[Mutant]:
    """All of the file. Unknown keys are a TypeError."""
    rows: list[dict[str, Any]] = yaml.safe_load(path.read_text("utf-8"))
    return [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def page(mutants: list[Mutant]) -> str:
    """Return the section of docs/promises.md about the mutants."""
    survived = sum(mutant.survived for mutant in mutants)
    (first, number), *others = Counter(mutant.promise for mutant in mutants).items()
    rest = [f"{count} to {key}" for key, count in others]
    return (
        "## Mutants\n\n"
        f"`python -m tests.mutants` removes {len(mutants)} lines of the code, one at a time, and "
        "runs tests that must then fail. [mutants.yaml](mutants.yaml) lists these lines: "
        f"{number} belong to promise {first}, {', '.join(rest[:-1])} and {rest[-1]}. "
        f"{survived} survived the last run.\n"
    )


def survives(mutant: Mutant) -> bool:
    """Whether its tests pass without that line. They must pass with it: see the caller."""
    with tempfile.TemporaryDirectory(prefix="fleet-mutant-") as name:
        tree = Path(name)
        for entry in COPIED:
            source = ROOT / entry
            (shutil.copytree if source.is_dir() else shutil.copy)(source, tree / entry)
        path = tree / mutant.file
        text = path.read_text("utf-8")
        if text.count(mutant.old) != 1:
            raise SystemExit(
                f"{mutant.id}: {mutant.file} has its text {text.count(mutant.old)} times"
            )
        path.write_text(text.replace(mutant.old, mutant.new), "utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutant.tests],
            cwd=tree,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
            env={**os.environ, "PYTHONPATH": name},
        )
    if done.returncode not in {0, 1}:
        raise SystemExit(f"{mutant.id}: the tests did not run: {done.stdout[-2000:]}{done.stderr}")
    return done.returncode == 0


def main() -> None:
    """Run the named mutants, or all; exit code 1 where one does not end as the file says."""
    parser = argparse.ArgumentParser(description="mutants of the code behind the promises")
    parser.add_argument("ids", nargs="*", help="which; all without")
    wanted = parser.parse_args().ids
    other = 0
    for mutant in load():
        if wanted and mutant.id not in wanted:
            continue
        survived = survives(mutant)
        other += survived != mutant.survived
        sys.stdout.write(f"{mutant.id}: {'survived' if survived else 'died'}: {mutant.what}\n")
        sys.stdout.flush()
    sys.exit(min(other, 1))


if __name__ == "__main__":
    main()
