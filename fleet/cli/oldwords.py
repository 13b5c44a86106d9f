"""The words of the version before, in today's grammar. This module goes with the next version."""

from __future__ import annotations

from collections.abc import Sequence

COMMANDS = {
    "lock": "reserve",
    "unlock": "reserve --end",
    "unreserve": "reserve --end",
    "who": "reserve --list",
    "inventory": "config",
    "schema": "config schema",
    "lock-file": "config lock",
    "runners": "config runners",
    "bench": "serve bench",
    "provision": "deploy --only system",
    "fsck": "status --verify",
    "resume --list": "deploy --runs",
    "resume": "deploy --resume",
    "adb list": "config phones",
    "adb connect": "config phones --connect",
    "adb pair": "config phones --pair",
    "adb": "config phones",
}
BEHIND = ("--resume", "--connect", "--pair")  # the old positional is the value of this option
BOARDS = {"inject": 2, "heal": 1, "exec": 1}  # old positionals, the first of them a board
TUNED = {"plan", "deploy", "push"}
TUNES = ("--carrier", "--bandwidth", "--per-hub", "--compress", "--whole", "--relay")
FLAGS = {"--whole", "--relay"}
RENAMED = {
    "profiles export": {"--to": "--output"},
    "profiles list": {"--limit": "--newest"},
    "profiles report": {"-o": "--output"},
    "bundle pull": {"-o": "--output"},
    "bundle wrap-ep": {"-o": "--output"},
}
FORMATS = {"wide", "json", "yaml", "name"}  # `-o` with one of these is the format
VALUED = {
    "-i", "--inventory", "-l", "--limit", "-p", "--parallel", "-o", "--format", "--server", "--dir",
}  # fmt: skip


def renewed(words: list[str]) -> tuple[list[str], list[str]]:
    """Return a command line in today's words, and a remark for each old word."""
    pairs: list[tuple[str, str]] = []
    words = _command(words, pairs)
    words = _board(words, pairs)
    words = _options(words, pairs)
    return words, [
        f"`{old}` is now `{new}`; the next version drops the old name"
        for old, new in dict.fromkeys(pairs)
    ]


def _command(words: list[str], pairs: list[tuple[str, str]]) -> list[str]:
    """Replace an old command. `resume --list` may have other words between its two."""
    if words[:1] == ["resume"] and "--list" in words:
        words = ["resume", "--list", *(word for word in words[1:] if word != "--list")]
    for old, new in COMMANDS.items():
        first, rest = words[: len(old.split())], words[len(old.split()) :]
        if first == old.split():
            pairs.append((f"fleet {old}", f"fleet {new}"))
            if new.endswith(BEHIND) and (place := _positional(rest)) is not None:
                rest = [rest[place], *rest[:place], *rest[place + 1 :]]
            elif new.endswith(BEHIND):  # without its value, which the parser asks for
                return [*new.split()[:-1], *rest, new.split()[-1]]
            return [*new.split(), *rest]
    return words


def _board(words: list[str], pairs: list[tuple[str, str]]) -> list[str]:
    """Replace the board that stood first: `lab exec lab001 -- ls`."""
    verb, rest = " ".join(words[1:2]), words[2:]
    options = rest[: rest.index("--")] if "--" in rest else rest
    place = _positional(rest)
    if words[:1] != ["lab"] or verb not in BOARDS or place is None:
        return words
    if any(word.startswith(("-l", "--limit")) for word in options):
        return words
    others = [*rest[:place], *rest[place + 1 :]]
    if BOARDS[verb] > 1 and _positional(others) is None:
        return words
    pairs.append((f"fleet lab {verb} BOARD", f"fleet lab {verb} -l BOARD"))
    return ["lab", verb, "-l", rest[place], *others]


def _positional(words: Sequence[str]) -> int | None:
    """Return the place of the first word that is no option and no value of one."""
    skipped = False
    for place, word in enumerate(words):
        if word == "--":
            return None
        if skipped or word.startswith("-"):
            skipped = not skipped and word in VALUED
            continue
        return place
    return None


def _options(words: list[str], pairs: list[tuple[str, str]]) -> list[str]:
    """Replace old options, up to `--`."""
    names = RENAMED.get(" ".join(words[:2]), {})
    if words[:1] and words[0] in TUNED:
        names = dict.fromkeys(TUNES, "--tune")
    new: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word == "--":
            new += [word, *rest]
        elif name not in names:
            new.append(word)
        elif name in FLAGS:
            pairs.append((name, f"--tune {name[2:]}"))
            new += ["--tune", name[2:]]
        else:
            value = value if equals else next(rest, "")
            new += _renamed(name, names[name], value, pairs)
    return new


def _renamed(name: str, new: str, value: str, pairs: list[tuple[str, str]]) -> list[str]:
    if name == "-o" and value in FORMATS:
        return [name, value]
    if new == "--tune":
        pairs.append((name, f"--tune {name[2:]}"))
        return [new, f"{name[2:]}={value}"]
    pairs.append((name, new))
    return [new, value]
