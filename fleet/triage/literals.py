"""Words of which one must stand in a text before a pattern can be found there.

A log holds the words of few patterns, and only those are compiled for it.
"""

from __future__ import annotations

import re
from re import _parser  # type: ignore[attr-defined]
from typing import Any

_LEAST = 3


def literals(pattern: str) -> list[str]:
    """Lower-case words, one of which is in every line that matches; [] where there is none."""
    try:
        found = _of(list(_parser.parse(pattern, re.IGNORECASE)))
    except (re.error, OverflowError):
        return []
    return sorted(found) if found and min(map(len, found)) >= _LEAST else []


def _of(nodes: list[Any]) -> set[str]:
    """The set whose shortest word is longest."""
    sets: list[set[str]] = []
    run = ""
    for kind, value in nodes:
        name = str(kind)
        if name == "LITERAL" and value < 128:
            run += chr(value).lower()
            continue
        if name == "AT":
            continue
        sets.append({run})
        run = ""
        if name == "SUBPATTERN":
            sets.append(_of(list(value[3])))
        elif name == "BRANCH":
            parts = [_of(list(branch)) for branch in value[1]]
            sets.append(set().union(*parts) if all(parts) else set())
        elif name in {"MAX_REPEAT", "MIN_REPEAT"} and value[0] > 0:
            sets.append(_of(list(value[2])))
    sets.append({run})
    usable = [words for words in sets if words and "" not in words]
    return max(usable, key=lambda words: (min(map(len, words)), -len(words)), default=set())
