"""Makes docs/commands.md anew from the commands: `python -m tests.docs.reference`.

What people wrote about a command, above its example and below its options, stays.
"""

from __future__ import annotations

import re
from pathlib import Path

from .tree import Command, commands, options

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
_SECTION = re.compile(r"^### `fleet ([^`]+)`\n", re.MULTILINE)
_TABLE = re.compile(r"\| option \| \|\n\|---\|---\|\n(?:\|.*\n)*")


def made(text: str) -> str:
    """The page as it should be, from the page as it is."""
    head, *rest = _SECTION.split(text)
    written = dict(zip(rest[::2], rest[1::2], strict=True))
    sections = (_section(name, command, written.get(name)) for name, command in commands())
    return "\n".join((head.rstrip() + "\n", *sections)).rstrip() + "\n"


def _section(name: str, command: Command, old: str | None) -> str:
    about, _, example = (command.help or "").partition("\n\nExample:")
    shown = re.sub(r"\n +", "\n", re.sub(r"\s*;? +\n\s*", "\n", example.strip()))
    before, after = about.strip(), ""
    if old is not None:
        before, _, tail = old.partition("```sh\n")
        shown, _, after = tail.partition("```\n")
        after = _TABLE.sub("", after)
    rows = [f"| {_names(names)} | {_cell(text)} |" for names, text in options(command)]
    rows = [row for row in rows if "`--help`" not in row]
    table = "\n".join(["| option | |", "|---|---|", *rows]) if rows else ""
    parts = (f"### `fleet {name}`", before, f"```sh\n{shown.strip()}\n```", table, after)
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _names(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(" / "))


def _cell(text: str) -> str:
    return re.sub(r"\\(\[)", r"\1", " ".join(text.split())).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text("utf-8")), "utf-8")
