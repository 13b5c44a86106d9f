"""Words that must stand in a line before a pattern can be found there.

A log holds the words of few patterns, and only those are compiled for it.
"""

from __future__ import annotations

import re
from re import _parser  # type: ignore[attr-defined]
from typing import Any

_LEAST = 2


def literals(pattern: str) -> list[list[str]]:
    """Return sets of lower-case words: each line that matches has one word of every set."""
    try:
        sets = _of(list(_parser.parse(pattern, re.IGNORECASE)))
    except (re.error, OverflowError):
        return []
    usable = {tuple(sorted(words)) for words in sets if words and min(map(len, words)) >= _LEAST}
    return [list(words) for words in sorted(usable)]


def _of(nodes: list[Any]) -> list[set[str]]:
    """Return the sets of a sequence of nodes: of its literal runs, groups and repetitions."""
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
            sets += _of(list(value[3]))
        elif name == "BRANCH":
            parts = [_best(_of(list(branch))) for branch in value[1]]
            sets.append(set().union(*parts) if all(parts) else set())
        elif name in {"MAX_REPEAT", "MIN_REPEAT"} and value[0] > 0:
            sets += _of(list(value[2]))
    sets.append({run})
    return [words for words in sets if words and "" not in words]


def _best(sets: list[set[str]]) -> set[str]:
    """Return the set whose shortest word is longest."""
    return max(sets, key=lambda words: (min(map(len, words)), -len(words)), default=set())
