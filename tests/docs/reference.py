"""Makes docs/commands.md and the table that TAB and `fleet --help` read anew from the commands:
`python -m tests.docs.reference`.

What people wrote about a command, above its example and below its options, stays.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import typer.main

from fleet.cli.main import app
from fleet.lab.lab import FAULTS, PHONE_FAULT_NAMES

from .tree import Command, commands, options

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "commands.md"
TABLE = ROOT / "fleet" / "cli" / "commands.json"
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
    example = example.replace("\nExample: ", "\n").strip()
    shown = re.sub(r"\n +", "\n", re.sub(r"\s*;? +\n\s*", "\n", example))
    before, after = about.strip(), ""
    if old is not None:
        before, _, tail = old.partition("```sh\n")
        shown, _, after = tail.partition("```\n")
        after = _TABLE.sub("", after)
    rows = [f"| {_names(names)} | {_cell(text)} |" for names, text in options(command)]
    table = "\n".join(["| option | |", "|---|---|", *rows]) if rows else ""
    parts = (f"### `fleet {name}`", before, f"```sh\n{shown.strip()}\n```", table, after)
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _names(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(" / "))


def _cell(text: str) -> str:
    return re.sub(r"\\(\[)", r"\1", " ".join(text.split())).replace("|", "\\|")


def table() -> str:
    """commands.json: a line a command."""
    return _lines(typer.main.get_command(app))


def _lines(command: Command, indent: str = "", path: str = "") -> str:
    children = getattr(command, "commands", None)
    about = (command.help or "").partition("\n\n")[0].replace("\n", " ")
    if children is None:
        params = command.get_params(typer.Context(command))
        node = {
            "help": about,
            "options": {
                name: _kind(p, path) for p in params if _is_option(p) for name in _named(p)
            },
            "arguments": [
                _kind(p, path) + "..." * (p.nargs == -1) for p in params if not _is_option(p)
            ],
        }
        return json.dumps(node, ensure_ascii=False)
    rows = [
        f'{indent} "{name}": {_lines(child, indent + " ", f"{path} {name}")}'
        for name, child in children.items()
    ]
    inner = ",\n".join(rows)
    return f'{{"help": {json.dumps(about)}, "commands": {{\n{inner}\n{indent}}}}}'


def _is_option(param: Command) -> bool:
    return any(name.startswith("-") for name in param.opts)


def _named(param: Command) -> list[str]:
    return [*param.opts, *param.secondary_opts]


def _kind(param: Command, path: str = "") -> str:
    """What a value is: see `fleet.cli.completion.table`."""
    if getattr(param, "is_flag", False):
        return ""
    if param.name == "name" and path.startswith(" lab "):
        return "boards"
    if param.name in BY_NAME:
        return BY_NAME[param.name]
    if choices := getattr(param.type, "choices", ()):
        return "|".join(str(getattr(choice, "value", choice)) for choice in choices)
    return "file" if param.type.name == "path" else "value"


BY_NAME = {
    "limit": "hosts",
    "host": "hosts",
    "playbook": "playbooks",
    "run_id": "runs",
    "resume": "runs",
    "selection": "runs",
    "selections": "runs",
    "what": "|".join(sorted({*FAULTS, "new-host-key", *PHONE_FAULT_NAMES})),
}

if __name__ == "__main__":
    TABLE.write_text(table() + "\n", "utf-8")
    PAGE.write_text(made(PAGE.read_text("utf-8")), "utf-8")
