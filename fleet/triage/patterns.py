"""Regular expressions over log lines: RE2 if it is installed, else Python's `re`.

RE2 takes linear time for any pattern and any text. Python's `re` does not, so without RE2 a log is
read in a child process with a deadline (`fleet.triage.bounded`). Case is ignored; `\\w`, `\\d` and
`\\b` mean ASCII, as in RE2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

try:
    import re2
except ImportError:  # no wheel for musl, or the extra is not installed
    re2 = None

_ERRORS: tuple[type[Exception], ...] = (re.error, *(() if re2 is None else (re2.error,)))
LINEAR = re2 is not None  # the time is linear in the length of the text
_MEMORY = 256 << 20  # the limit of the automaton, which grows with the searched lines


class PatternError(ValueError):
    """A text that is not a valid regular expression."""


def compiled(pattern: str) -> Any:  # noqa: ANN401 - re2's object has no public type
    """Return a compiled pattern with the method `search`. Raises PatternError."""
    try:
        if re2 is None:
            return re.compile(named_once(pattern), re.IGNORECASE | re.ASCII)
        return re2.compile(pattern, _options())
    except _ERRORS as error:
        raise PatternError(str(error)) from error


def searcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tells if the pattern occurs in a line. Raises PatternError.

    If pattern and line are ASCII, they are compared as bytes. RE2 compiles and runs that in two
    thirds of the time that it needs for UTF-8.
    """
    wide = cache(lambda: compiled(pattern).search)
    if re2 is None or not pattern.isascii():
        search = wide()
        return lambda line: search(line) is not None
    narrow = re2.compile(pattern.encode(), _options(narrow=True)).search
    return lambda line: (narrow(line.encode()) if line.isascii() else wide()(line)) is not None


class PatternSet:
    """Several patterns that are searched for in one pass."""

    def __init__(self, patterns: Sequence[str], words: Sequence[Sequence[Sequence[str]]]) -> None:
        """Compile the patterns.

        `words` are the literals of each: a matching line has one of each set.
        """
        if re2 is not None:
            self._set = re2.Set.SearchSet(_options())
            for pattern in patterns:
                self._set.Add(pattern)
            self._set.Compile()
            return
        self._alone = [
            (number, literals, searcher(pattern))
            for number, (pattern, literals) in enumerate(zip(patterns, words, strict=True))
        ]

    def match(self, line: str) -> list[int]:
        """Return the places of the patterns that occur in a line."""
        if re2 is not None:
            return sorted(self._set.Match(line.encode("utf-8", "replace")) or ())
        low = line.lower()
        return [
            number
            for number, literals, search in self._alone
            if all(any(word in low for word in those) for those in literals) and search(line)
        ]


def named_once(pattern: str) -> str:
    """Return the pattern with only the first group of each name named, as RE2 requires."""
    names: set[str] = set()

    def name(group: re.Match[str]) -> str:
        again = group[0] in names
        names.add(group[0])
        return "(" if again else group[0]

    return re.sub(r"\(\?P<\w+>", name, pattern)


def _options(*, narrow: bool = False) -> Any:  # noqa: ANN401
    options = re2.Options()
    if narrow:
        options.encoding = re2.Options.Encoding.LATIN1
    options.case_sensitive = False
    options.log_errors = False
    options.max_mem = _MEMORY
    return options
