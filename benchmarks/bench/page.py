"""The page of figures that `transfer.py --docs` writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .stats import ENOUGH, Result
from .table import section

_TEXT = Path(__file__).with_name("page.md")


def page(runs: Sequence[dict[str, Any]], results: Sequence[Result], svg: str) -> str:
    """The page for these runs; a run that claims nothing says so."""
    figures = "\n\n".join([*map(_run, runs), *map(section, results)])
    text = _TEXT.read_text("utf-8")
    return text.replace("(SVG)", f"({svg})").replace("@FIGURES@", figures)


def _run(run: dict[str, Any]) -> str:
    more = ", ".join(run.get("continued", ()))
    date = f"{run['date']} (cut, continued {more})" if more else run["date"]
    lines = [f"{date}, {run['machine']['line']}.", "", f"`{run['command']}`"]
    doubts = []
    if run["machine"]["busy"]:
        doubts.append("the machine was busy")
    if run["rounds"] < ENOUGH:
        doubts.append(f"{run['rounds']} rounds are too few")
    if run["scale"] != 1.0:
        doubts.append(f"the sizes are {run['scale']:g} of the full ones")
    if not run["push"]:
        doubts.append("fleet's rows are those of the Python API")
    if doubts:
        lines += ["", f"**These figures claim nothing: {'; '.join(doubts)}.**"]
    return "\n".join(lines)
