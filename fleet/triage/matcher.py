"""Numbered patterns over each line of a log, those first whose words the log contains."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from fleet.model.errors import InputError
from fleet.triage.literals import literals
from fleet.triage.patterns import PatternError, PatternSet, compiled


class Matcher:
    """Numbered patterns; `match` gives the numbers that are found in a text."""

    def __init__(
        self,
        patterns: Sequence[str],
        *,
        names: Sequence[str] = (),
        words: Sequence[Sequence[str]] | None = None,
    ) -> None:
        """Raises InputError for a pattern that is none; `names` say where it stands.

        `words` are the literals of each pattern: those of an index that was checked before.
        """
        self.patterns = patterns
        if words is None:
            _check(patterns, names)
        self.words = words if words is not None else [literals(pattern) for pattern in patterns]
        self._sets: dict[tuple[int, ...], PatternSet] = {}

    def over(self, text: str) -> Matched:
        """The patterns that can be found in lines of `text`."""
        low = text.lower()
        parts = "\n".join(set(low.split()))  # a long log repeats its words

        @cache
        def there(word: str) -> bool:
            return all(part in parts for part in word.split()) and word in low

        picked = [
            number for number, words in enumerate(self.words) if not words or any(map(there, words))
        ]
        return Matched(self, tuple(picked))

    def match(self, text: str) -> list[int]:
        """Numbers of the patterns that occur in `text`."""
        return self.over(text).match(text)

    def compiled(self, numbers: tuple[int, ...]) -> PatternSet:
        """These patterns as one automaton."""
        if numbers not in self._sets:
            if len(self._sets) > 64:
                self._sets.clear()
            self._sets[numbers] = PatternSet(
                [self.patterns[number] for number in numbers],
                [self.words[number] for number in numbers],
            )
        return self._sets[numbers]


class Matched:
    """The patterns of a matcher that one text can hold."""

    def __init__(self, matcher: Matcher, numbers: tuple[int, ...]) -> None:
        """Compiles them when it is first asked."""
        self._matcher = matcher
        self.numbers = numbers

    def match(self, line: str) -> list[int]:
        """Numbers of the patterns that occur in a line of the text."""
        if not self.numbers:
            return []
        found = self._matcher.compiled(self.numbers).match(line)
        return [self.numbers[index] for index in found]


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
