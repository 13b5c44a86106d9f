"""The suggestions of the TAB key, from the table of commands and from files.

They import no command and contact no device. The shells are bash, zsh and fish, with the scripts
that `fleet --install-completion` writes.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

VARIABLES = ("_FLEET_COMPLETE", "_NPU_FLEET_COMPLETE")
SHOWN_RUNS = 50
Offer = tuple[str, str]  # a word and its description


@cache
def table() -> dict[str, Any]:
    """Return the commands with their help, options and arguments, from commands.json.

    `python -m tests.docs.reference` generates the file. The value of an option or argument is a
    kind of `KINDS`, words separated by `|`, `file` or `value`. An option without a value has "".
    """
    text = Path(__file__).with_name("commands.json").read_text("utf-8")
    commands: dict[str, Any] = json.loads(text)
    return commands


def asked() -> bool:
    """Return whether a shell requests suggestions; in that case, `answer` is all that is to be
    done.
    """
    return any(os.environ.get(name) in _SHELLS for name in VARIABLES)


def answer() -> None:
    """Print the suggestions in the format of the requesting shell. Errors print nothing."""
    typed, show = next(_SHELLS[os.environ[name]] for name in VARIABLES if name in os.environ)
    words, begun = typed()
    try:
        suggestions = offers(words, begun)
    except Exception:  # noqa: BLE001 - a traceback would only disturb the typing
        suggestions = []
    show(suggestions)


def offers(words: list[str], begun: str) -> list[Offer]:
    """Return the suggestions for `begun`, after `words` (without the program)."""
    node, values, wants, count = table(), {}, "", 0
    for word in words:
        if wants:
            values[wants], wants = word, ""
        elif word.startswith("-"):
            wants = word if node.get("options", {}).get(word) else ""
        elif "commands" in node:
            node = node["commands"].get(word, {})
        else:
            count += 1
    if wants:
        return _valued(node["options"][wants], values, begun)
    if begun.startswith("-"):
        return [(name, "") for name in node.get("options", ()) if name.startswith(begun)]
    if "commands" in node:
        children = node["commands"].items()
        return [(name, of["help"]) for name, of in children if name.startswith(begun)]
    kinds = node.get("arguments", [])
    last = kinds[-1] if kinds and kinds[-1].endswith("...") else ""
    return _valued(next(iter(kinds[count:]), last).removesuffix("..."), values, begun)


def _valued(kind: str, values: Mapping[str, str], begun: str) -> list[Offer]:
    head, comma, rest = begun.rpartition(",") if kind == "hosts" else ("", "", begun)
    choices = kind.split("|") if "|" in kind else []
    candidates = KINDS[kind](values) if kind in KINDS else choices
    return [(head + comma + word, "") for word in candidates if word.startswith(rest)]


def _hosts(values: Mapping[str, str]) -> list[str]:
    from fleet.cli.project import supplied  # noqa: PLC0415 - YAML
    from fleet.config.inventory import load_inventory  # noqa: PLC0415

    given = values.get("-i") or values.get("--inventory")
    path = Path(given).expanduser() if given else supplied("inventory")
    if path is None:
        return []
    loaded = load_inventory(path)
    return [*loaded.groups, *(host.name for host in loaded.hosts)]


def _playbooks(_: Mapping[str, str]) -> list[str]:
    paths = [path for folder in (Path(), Path("playbooks")) for path in folder.glob("*.yaml")]
    return sorted(str(path) for path in paths if path.name not in {"fleet.yaml", "fleet.lock"})


def _runs(_: Mapping[str, str]) -> list[str]:
    from fleet.cli.project import runs  # noqa: PLC0415 - YAML
    from fleet.model.home import fleet_home  # noqa: PLC0415

    folder = runs() or fleet_home() / "runs"
    names = sorted((path.name for path in folder.iterdir() if path.is_dir()), reverse=True)
    return ["last", *names[:SHOWN_RUNS]]


def _boards(values: Mapping[str, str]) -> list[str]:
    from fleet.config.inventory import load_inventory  # noqa: PLC0415 - YAML

    folder = Path(values.get("--dir") or ".lab")
    return [host.name for host in load_inventory(folder / "inventory.yaml").hosts]


KINDS: Mapping[str, Callable[[Mapping[str, str]], Iterable[str]]] = {
    "hosts": _hosts,
    "playbooks": _playbooks,
    "runs": _runs,
    "boards": _boards,
}


def _split(text: str) -> list[str]:
    """Split text like a shell; an open quote is closed."""
    for end in ("", "'", '"'):
        try:
            return shlex.split(text + end)
        except ValueError:
            continue
    return text.split()


def _of_bash() -> tuple[list[str], str]:
    words, at = _split(os.environ["COMP_WORDS"]), int(os.environ["COMP_CWORD"])
    return words[1:at], words[at] if at < len(words) else ""


def _of_line() -> tuple[list[str], str]:
    """Return the words from zsh and fish, which pass the line up to the cursor."""
    line = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    words = _split(line)[1:]
    return (words, "") if line.endswith(" ") or not words else (words[:-1], words[-1])


def _bash(suggestions: list[Offer]) -> None:
    sys.stdout.write("".join(f"{word}\n" for word, _ in suggestions))


def _zsh(suggestions: list[Offer]) -> None:
    def escape(text: str) -> str:
        for char, by in (('"', '""'), ("'", "''"), ("$", r"\$"), ("`", r"\`"), (":", r"\\:")):
            text = text.replace(char, by)
        return f'"{text}"'

    rows = "\n".join(
        escape(word) + (f":{escape(about)}" if about else "") for word, about in suggestions
    )
    sys.stdout.write(f"_arguments '*: :(({rows}))'\n" if rows else "_files\n")


def _fish(suggestions: list[Offer]) -> None:
    if os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        sys.exit(not suggestions)
    sys.stdout.write("".join(f"{word}\t{about}\n" for word, about in suggestions))


Shell = tuple[Callable[[], tuple[list[str], str]], Callable[[list[Offer]], None]]
_SHELLS: Mapping[str | None, Shell] = {
    "complete_bash": (_of_bash, _bash),
    "complete_zsh": (_of_line, _zsh),
    "complete_fish": (_of_line, _fish),
}
