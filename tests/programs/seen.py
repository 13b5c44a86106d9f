"""What `make test-programs` saw: tests/programs/seen.json, from which docs/platforms.md is made.

`python -m tests.programs.seen` writes the table of docs/platforms.md from it.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("seen.json")
PAGE = ROOT / "docs" / "platforms.md"
BEGIN, END = "<!-- made by python -m tests.programs.seen -->", "<!-- end -->"


class Seen(TypedDict):
    """One program under one runner; `never` is the reason where it was not run, else ""."""

    runner: str
    program: str
    version: str
    on: str
    when: str
    showed: str
    never: str


def all_seen() -> list[Seen]:
    rows: list[Seen] = json.loads(FILE.read_text("utf-8"))
    return rows


def saw(runner: str, program: str, version: str, on: str, showed: str) -> None:
    """Keep that a test saw it, today."""
    when = time.strftime("%Y-%m-%d", time.gmtime())
    row = Seen(
        runner=runner, program=program, version=version, on=on, when=when, showed=showed, never=""
    )
    others = [old for old in all_seen() if (old["runner"], old["program"]) != (runner, program)]
    rows = sorted([*others, row], key=lambda kept: (kept["runner"], kept["program"]))
    FILE.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", "utf-8")


def table() -> str:
    """The rows as Markdown."""
    lines = ["| runner | program | ran on | when | showed |", "|---|---|---|---|---|"]
    for row in all_seen():
        name = f"{row['program']} {row['version']}".strip()
        cells = (
            ("**never run**", "", row["never"])
            if row["never"]
            else (row["on"], row["when"], row["showed"])
        )
        lines.append("| " + " | ".join((f"`{row['runner']}`", name, *cells)) + " |")
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with today's table."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
