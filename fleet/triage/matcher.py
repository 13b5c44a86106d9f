"""Numbered patterns for the lines of a log, limited first to those whose words the log contains."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, reduce
from operator import or_
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from fleet.model.errors import InputError
from fleet.triage.patterns import PatternError, PatternSet, compiled, named_once, searcher

# Words that a line must contain before a pattern can match it.
#
# A log contains the words of few patterns, and only those are compiled for it.

_LEAST = 2


def literals(pattern: str) -> list[list[str]]:
    """Return sets of lower-case words: each matching line has one word of every set."""
    try:
        sets = _of(list(_parser.parse(named_once(pattern), re.IGNORECASE)))
    except (re.error, OverflowError):
        return []
    usable = {tuple(sorted(words)) for words in sets if words and min(map(len, words)) >= _LEAST}
    return [list(words) for words in sorted(usable)]


def _of(nodes: list[Any]) -> list[set[str]]:
    """Return the sets of a sequence of nodes, from its literal runs, groups and repetitions."""
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


_SPLIT = 800  # a text with more lines is not searched line by line


class Matcher:
    """Numbered patterns; `match` returns the numbers of those that occur in a text."""

    def __init__(
        self,
        patterns: Sequence[str],
        *,
        names: Sequence[str] = (),
        words: Sequence[Sequence[Sequence[str]]] | None = None,
    ) -> None:
        """Check the patterns. Raises InputError for an invalid pattern; `names` state where it is.

        `words` are the literals of each pattern, from an index whose patterns were checked when it
        was written. With `words`, the patterns are not checked again.
        """
        self.patterns = patterns
        if words is None:
            _check(patterns, names)
        self.words = words if words is not None else [literals(pattern) for pattern in patterns]
        self._sets: dict[tuple[int, ...], PatternSet] = {}
        self._alone: dict[int, Callable[[str], bool]] = {}

    def over(self, text: str, among: Sequence[int] | None = None) -> Matched:
        """Return the patterns, or those `among` them, that can occur in lines of `text`."""
        places = _places(text)
        numbers, rows = [], {}
        for number in range(len(self.words)) if among is None else among:
            common = -1
            for words in self.words[number]:
                common &= reduce(or_, map(places, words))
                if not common:
                    break
            if common:
                numbers.append(number)
                rows[number] = common
        return Matched(self, tuple(numbers), text, rows)

    def match(self, text: str) -> list[int]:
        """Return the numbers of the patterns that occur in `text`."""
        return self.over(text).match(text)

    def search(self, number: int, line: str) -> bool:
        """Return True if a pattern occurs in a line."""
        if number not in self._alone:
            self._alone[number] = searcher(self.patterns[number])
        return self._alone[number](line)

    def compiled(self, numbers: tuple[int, ...]) -> PatternSet:
        """Compile these patterns into one automaton, and keep it."""
        if numbers not in self._sets:
            if len(self._sets) > 64:
                self._sets.clear()
            self._sets[numbers] = PatternSet(
                [self.patterns[number] for number in numbers],
                [self.words[number] for number in numbers],
            )
        return self._sets[numbers]


class Matched:
    """The patterns of a matcher that can occur in one text.

    In a short text each pattern is searched alone in the lines that have its words. To compile one
    automaton of hundreds of patterns would take longer; a long text is worth it.
    """

    def __init__(
        self, matcher: Matcher, numbers: tuple[int, ...], text: str, rows: dict[int, int]
    ) -> None:
        """Store the matcher; `rows` are the lines in which each pattern can occur, as bits."""
        self._matcher = matcher
        self.numbers = numbers
        self._rows = rows
        self._any = reduce(or_, rows.values(), 0)
        self._numbered = _numbered(text)

    def match(self, line: str) -> list[int]:
        """Return the numbers of the patterns that occur in a line of the text."""
        if not self.numbers:
            return []
        if self._numbered is not None:
            at = self._numbered.get(line)
            if at is None:
                return [row for row in self.numbers if self._matcher.search(row, line)]
            if not self._any >> at & 1:
                return []
            return [
                row
                for row in self.numbers
                if self._rows[row] >> at & 1 and self._matcher.search(row, line)
            ]
        places = self._matcher.compiled(self.numbers).match(line)
        return [self.numbers[index] for index in places]


@lru_cache(maxsize=8)
def _numbered(text: str) -> dict[str, int] | None:
    """Return the place of each line of a short text; None for a long text."""
    lines = text.split("\n")
    return {line: at for at, line in enumerate(lines)} if len(lines) <= _SPLIT else None


@lru_cache(maxsize=8)
def _places(text: str) -> Callable[[str], int]:
    """Return a function that gives the lines with a word, as bits.

    A long text counts as one line.
    """
    low = text.lower()
    parts = "\n".join(set(low.split()))  # a long log repeats its words
    lines = low.split("\n") if _numbered(text) else [low]

    @cache
    def places(word: str) -> int:
        if word not in low or not all(part in parts for part in word.split()):
            return 0
        return sum(1 << number for number, line in enumerate(lines) if word in line)

    return places


def _check(patterns: Sequence[str], names: Sequence[str]) -> None:
    for index, pattern in enumerate(patterns):
        try:
            compiled(pattern)
        except PatternError as error:
            place = names[index] if names else "a pattern"
            raise InputError(
                f"{place}: '{pattern}' is not a valid RE2 regular expression",
                hint="use RE2 syntax, without look-around and back references",
            ) from error
