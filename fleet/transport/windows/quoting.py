"""Words for Windows: a command line that a program splits into exactly its arguments.

The rules are those of the Microsoft C runtime and CommandLineToArgvW: blanks part arguments,
double quotes keep them together, and a backslash counts as itself unless a quote follows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fleet.model.errors import InputError

_PLAIN = re.compile(r"[^\s\"]+", re.ASCII)
_LONGEST = 32_000  # CreateProcess takes 32,767 characters, the program's own path among them
# cmd.exe would run these and read the line by rules of its own: %, ^, & become syntax again.
_BATCH = (".bat", ".cmd")


def arguments(words: Sequence[str]) -> str:
    """The arguments of a program as one text. Raises InputError when it is too long."""
    line = " ".join(quoted(word) for word in words)
    if len(line.encode("utf-16-le", "surrogatepass")) // 2 > _LONGEST:
        raise InputError(
            f"a command line of {len(line)} characters is too long for Windows",
            hint=f"at most {_LONGEST}: put long texts into files",
        )
    return line


def quoted(word: str) -> str:
    """One argument."""
    if _PLAIN.fullmatch(word):
        return word
    doubled = re.sub(r'(\\*)"', r'\1\1\\"', word)
    return '"' + re.sub(r"(\\+)$", r"\1\1", doubled) + '"'


def program(name: str) -> str:
    """A program that may be started. Raises InputError for a batch file: cmd.exe would read it."""
    if name.rstrip(" .").lower().endswith(_BATCH):
        raise InputError(
            f"{name} is a batch file: cmd.exe would read its arguments as code",
            hint="name the program that it starts",
        )
    return name
