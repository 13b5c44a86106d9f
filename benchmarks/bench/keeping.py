"""What was measured so far, on disk after each scenario: a run that is cut keeps the others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .chart import chart
from .page import page
from .stats import Result

SAME = ("scale", "rounds")  # what two halves of one run must share
_MEMORY = "f-memory"  # its name in files from before it was a scenario of its own


@dataclass(frozen=True)
class Outputs:
    """Where to write; None: not at all."""

    figures: Path | None = None
    svg: Path | None = None
    docs: Path | None = None

    def write(self, runs: Sequence[dict[str, Any]]) -> None:
        """All that is asked for. Each file is replaced as a whole."""
        ordered = results_of(runs)
        if self.figures:
            replace(self.figures, json.dumps(runs[0], indent=1) + "\n")
        caption = f"{runs[0]['date']}, medians, lab boards on loopback; shorter is better"
        drawing = chart(ordered, caption) if self.svg or self.docs else ""
        if self.svg:
            replace(self.svg, drawing)
        if self.docs:
            beside = self.docs.with_suffix(".svg")
            replace(beside, drawing)
            replace(self.docs, page(runs, ordered, beside.name))


@dataclass
class Keeper:
    """The figures of a run as plain data, written after each scenario and each partial one.

    `run` is what is known of the run beside its results. `done` are the letters that need not be
    measured again.
    """

    run: dict[str, Any]
    outputs: Outputs = field(default_factory=Outputs)

    @property
    def done(self) -> str:
        return "".join(self.run["done"])

    def partial(self, results: Iterable[Result]) -> None:
        """What there is of a scenario that goes on."""
        fresh = {one.scenario: one.as_dict() for one in results}
        kept = [one for one in self.run["results"] if one["scenario"] not in fresh]
        self.run["results"] = [*kept, *fresh.values()]
        self.outputs.write([self.run])

    def whole(self, letter: str, results: Iterable[Result]) -> None:
        """A scenario that is done."""
        self.run["done"] = [*self.run["done"], letter]
        self.partial(results)


def replace(path: Path, text: str) -> None:
    """Write a file as a whole: whoever reads it sees the old one or the new one."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, "utf-8")
    part.replace(path)


def results_of(runs: Sequence[dict[str, Any]]) -> list[Result]:
    """The results of all runs in the order of their scenarios; a later run wins."""
    found = {one["scenario"]: Result.read(one) for run in runs for one in run["results"]}
    return [found[name] for name in sorted(found, key=lambda name: name[0])]


def resumed(earlier: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """`now` that goes on where `earlier` was cut: only what it has whole is kept.

    Raises ValueError for runs whose figures cannot stand in one table.
    """
    for name in SAME:
        if earlier[name] != now[name]:
            raise ValueError(f"it has {name} {earlier[name]}, this run {now[name]}")
    done = done_of(earlier)
    kept = [one for one in earlier["results"] if _letter(one) in done]
    busy = earlier["machine"]["busy"] or now["machine"]["busy"]
    return {
        **earlier,
        "machine": {**earlier["machine"], "busy": busy},
        "continued": [*earlier.get("continued", []), now["date"]],
        "done": done,
        "results": kept,
    }


def _letter(result: dict[str, Any]) -> str:
    name = str(result["scenario"])
    return "m" if name == _MEMORY else name[0]


def done_of(run: dict[str, Any]) -> list[str]:
    """Letters of its whole scenarios; files from before there was such a list have no others."""
    found = run.get("done")
    return sorted({_letter(one) for one in run["results"]}) if found is None else list(found)
