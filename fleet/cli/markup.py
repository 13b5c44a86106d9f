"""Tags like [bold] in texts for people, interpreted like rich does, but without rich.

A pipe and `--json` show no colours, and rich takes 40 ms to start.
"""

from __future__ import annotations

import re

_TAG = re.compile(r"(\\*)(\[[a-z#/@][^\[]*?\])")


def escape(text: str) -> str:
    """Return the text with all tags escaped; a backslash at its end does not escape a following
    tag.
    """
    quoted = _TAG.sub(lambda match: f"{match[1] * 2}\\{match[2]}", text)
    ends = len(quoted) - len(quoted.rstrip("\\"))
    return quoted + "\\" if ends == 1 else quoted


def plain(text: str) -> str:
    """Return the text without its tags, as rich shows it."""
    parts, end = [], 0
    for match in _TAG.finditer(text):
        half, quoted = divmod(len(match[1]), 2)
        parts += [_words(text[end : match.start()]), "\\" * half, match[2] if quoted else ""]
        end = match.end()
    return "".join([*parts, _words(text[end:])])


def _words(text: str) -> str:
    return text.replace("\\[", "[")
