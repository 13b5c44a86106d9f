"""All patterns at once over each line: RE2, so no pattern and no log can make it slow."""

from __future__ import annotations

from collections.abc import Sequence

import re2

from fleet.model.errors import InputError

_MEMORY = 256 << 20  # of the automaton; it grows with the lines that are seen


class Matcher:
    """Numbered patterns; `match` gives the numbers that are found in a text."""

    def __init__(self, patterns: Sequence[str], *, names: Sequence[str] = ()) -> None:
        """Raises InputError for a pattern that RE2 does not know; `names` say where it stands."""
        options = re2.Options()
        options.case_sensitive = False
        options.log_errors = False
        options.max_mem = _MEMORY
        self._set = re2.Set.SearchSet(options)
        for index, pattern in enumerate(patterns):
            try:
                self._set.Add(pattern)
            except re2.error as error:
                place = names[index] if names else "a pattern"
                raise InputError(
                    f"{place}: '{pattern}' is no pattern of RE2",
                    hint="RE2 has no look-around and no back references: github.com/google/re2",
                ) from error
        self._set.Compile()
        self._empty = not patterns

    def match(self, text: str) -> list[int]:
        """Numbers of the patterns that occur in `text`."""
        if self._empty:
            return []
        return list(self._set.Match(text.encode("utf-8", "replace")) or ())
