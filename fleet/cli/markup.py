"""Tags like [bold] in texts for people: what rich makes of them, without rich.

A pipe and `--json` show no colours, and rich takes 40 ms to start.
"""

from __future__ import annotations

import re

_TAG = re.compile(r"(\\*)(\[[a-z#/@][^\[]*?\])")


def escape(text: str) -> str:
    """The text in which nothing is a tag, and a backslash at the end quotes none of ours."""
    quoted = _TAG.sub(lambda found: f"{found[1] * 2}\\{found[2]}", text)
    ends = len(quoted) - len(quoted.rstrip("\\"))
    return quoted + "\\" if ends == 1 else quoted


def plain(text: str) -> str:
    """What stands there without the tags, as rich shows it."""
    parts, end = [], 0
    for found in _TAG.finditer(text):
        half, quoted = divmod(len(found[1]), 2)
        parts += [_words(text[end : found.start()]), "\\" * half, found[2] if quoted else ""]
        end = found.end()
    return "".join([*parts, _words(text[end:])])


def _words(text: str) -> str:
    return text.replace("\\[", "[")
