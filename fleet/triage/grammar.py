"""The grammar of log lines: patterns with slots.

`{library}: cannot open shared object` matches any library. The text in the slot is used in title,
evidence and fix (fleet/model/slots.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from fleet.model.slots import SLOTS
from fleet.triage.patterns import compiled

# The patterns for facts about the device in a log; those from the chip itself come first.
BESIDE = (
    r"hexagon arch(?:itecture)?\W{1,3}(?:version )?{arch}",
    r"\b(?:dsp|htp|hexagon)_arch\W{1,4}{arch}",
    r"Htp{arch}(?:Skel|Stub)",
)
_LIKE: dict[str, Callable[[str], str]] = {
    "arch": str.lower,
    "processor": str.lower,
    "module": lambda word: word.partition(".")[0],  # pip installs the package of a submodule
    "subject": lambda word: word.rstrip(":.,"),
}
_IN_PATTERN = re.compile(r"\{(" + "|".join(SLOTS) + r")\}")


def expanded(pattern: str) -> str:
    """Return the pattern with each slot as a named group."""
    return _IN_PATTERN.sub(lambda slot: f"(?P<{slot[1]}>{SLOTS[slot[1]]})", pattern)


def has_slots(pattern: str) -> bool:
    """Return True if the pattern captures a part of the line."""
    return "(?P<" in pattern


def captured(pattern: str, line: str) -> dict[str, str]:
    """Return the texts in the slots of an expanded pattern, in this line."""
    match = _compiled(pattern).search(line)
    words = match.groupdict().items() if match else ()
    return {name: _LIKE.get(name, str)(word) for name, word in words if word}


# Folders that a log names, by the files in them.
_FOLDERS = {
    "RELEASE": r"((?:/[\w.+-]+){2,8})/(?:lib|dsp)/lib\w+\.so",
    "QAIRT": r"((?:/[\w.+-]+){2,8})/(?:lib|bin)/(?:aarch64-\w+|hexagon-v\d\d|x86_64-linux-clang)",
    "BUNDLE": r"((?:/[\w.+-]+){2,8})/(?:gen(?:ie|ai)_config\.json|\w[\w.-]*\.serialized\.bin)",
}
_OF_THE_SYSTEM = ("/usr", "/lib", "/vendor", "/system", "/apex", "/odm", "/data/app", "/bin")


def beside(text: str) -> dict[str, str]:
    """Return the values of BESIDE and the folders that a whole log shows."""
    slots: dict[str, str] = {}
    for pattern in BESIDE:
        slots = {**captured(expanded(pattern), text), **slots}
    for name, pattern in _FOLDERS.items():
        match = _compiled(pattern).search(text)
        if match and not match.group(1).startswith(_OF_THE_SYSTEM):
            slots[name] = match.group(1)
    return slots


_compiled = cache(compiled)
