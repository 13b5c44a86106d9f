"""What `make test-programs` saw: tests/programs/seen.json, from which docs/platforms.md is made.

`python -m tests.programs.seen` writes the table of docs/platforms.md from it.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from fleet.data import load
from fleet.runtimes.stage import file_lock
from tests.support_runtime import cache_root

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("seen.json")
VERSIONS = [row["qairt"] for row in load("qairt_releases")["releases"]]
PAGE = ROOT / "docs" / "platforms.md"
MARK, END = "<!-- made by python -m tests.programs.seen{} -->", "<!-- end -->"


class Seen(TypedDict):
    """One program under one runner; `never` is the reason where it was not run, else ""."""

    runner: str
    program: str
    version: str
    on: str
    when: str
    showed: str
    never: str


class Clock(TypedDict):
    """What fleet reports, and by which other clock; `apart` is a share of it."""

    runner: str
    what: str
    by: str
    apart: float


class Everything(TypedDict):
    """`pairs`: program → QAIRT version → works, refused or warned."""

    rows: list[Seen]
    clocks: list[Clock]
    pairs: dict[str, dict[str, str]]


def everything() -> Everything:
    found: Everything = json.loads(FILE.read_text("utf-8"))
    return found


@contextlib.contextmanager
def _kept() -> Iterator[Everything]:
    """To be changed; another process of the same run waits."""
    with file_lock(cache_root() / "seen.lock", 60):
        kept = everything()
        yield kept
        kept["rows"].sort(key=lambda row: (row["runner"], row["program"]))
        kept["clocks"].sort(key=lambda row: (row["runner"], row["what"]))
        text = json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True)
        FILE.write_text(text + "\n", "utf-8")


def sdk_version(folder: Path) -> str:
    """Of the SDK's own file, whatever libraries lie in it."""
    found = re.search(
        r"^version: *['\"]?([0-9.]+)", (folder / "sdk.yaml").read_text("utf-8"), re.MULTILINE
    )
    assert found, folder
    return found[1]


def all_seen() -> list[Seen]:
    return everything()["rows"]


def saw_clock(runner: str, what: str, by: str, apart: float) -> None:
    """Keep how far fleet's figure and that of another clock were apart."""
    row = Clock(runner=runner, what=what, by=by, apart=round(apart, 5))
    with _kept() as kept:
        old = [row for row in kept["clocks"] if (row["runner"], row["what"]) != (runner, what)]
        kept["clocks"] = [*old, row]


def saw_pair(program: str, qairt: str, outcome: str) -> None:
    """Keep what a pinned program and a version of QAIRT did together."""
    with _kept() as kept:
        kept["pairs"].setdefault(program, {})[qairt] = outcome


def saw(runner: str, program: str, version: str, on: str, showed: str) -> None:
    """Keep that a test saw it, today."""
    when = time.strftime("%Y-%m-%d", time.gmtime())
    row = Seen(
        runner=runner, program=program, version=version, on=on, when=when, showed=showed, never=""
    )
    with _kept() as kept:
        old = [row for row in kept["rows"] if (row["runner"], row["program"]) != (runner, program)]
        kept["rows"] = [*old, row]


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


def clock_table() -> str:
    """What fleet reports beside another clock, as Markdown."""
    lines = ["| runner | reported | beside it | apart |", "|---|---|---|---|"]
    for row in everything()["clocks"]:
        cells = (f"`{row['runner']}`", row["what"], row["by"], f"{row['apart']:.2%}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def pair_table() -> str:
    """Each pinned program and each QAIRT, as Markdown."""
    lines = [f"| program | {' | '.join(VERSIONS)} |", "|---" * (len(VERSIONS) + 1) + "|"]
    for program, found in everything()["pairs"].items():
        lines.append(
            f"| {program} | " + " | ".join(found.get(qairt, "") for qairt in VERSIONS) + " |"
        )
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with today's tables."""
    for name, made in (("", table), (" clocks", clock_table), (" pairs", pair_table)):
        begin = MARK.format(name)
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{made()}\n{END}{rest.partition(END)[2]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
