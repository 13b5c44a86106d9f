"""Text that can be shown on a terminal, whatever was in it."""

from __future__ import annotations

import re
from pathlib import Path

from fleet.model.masking import masked

# CSI, OSC and other escape sequences of terminals (ECMA-48), then what is left of control codes.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)?"
    r"|\x1b[PX^_][^\x1b\n]{0,2000}(?:\x1b\\)?|\x1b[ -/]{0,8}[0-~]|\x9b[0-?]{0,64}[@-~]"
)
# Bidirectional controls (UAX #9), line and paragraph separators, and what has no width.
_UNSEEN = r"\u061c\u200b-\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff"
_CONTROLS = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_UNSEEN}]")
_NOT_IN_JSON = re.compile(rf"[\x7f-\x9f\ud800-\udfff{_UNSEEN}]")


def harmless(text: str) -> str:
    """Text that can be shown: no escape sequences, no controls, no turned direction, no revealed
    secret.
    """
    return masked(_CONTROLS.sub("", _ESCAPES.sub("", masked(text))))  # it may hold controls


def harmless_json(text: str) -> str:
    r"""Return a JSON document with the same value, whose unseen characters are escapes: `\u202e`.

    They stand inside of strings only, so an escape means the same character.
    """
    return _NOT_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def visible(text: str) -> str:
    r"""Return text with every character that shows as nothing escaped: `\x1b`, `\u202e`, `\n`.

    A byte that is not UTF-8 (`os.fsdecode`) is shown as the byte: `\xff`.
    """
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(one: str) -> str:
    code = ord(one)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return one.encode("unicode_escape", "surrogatepass").decode()


def from_here(word: str) -> str:
    """A file as seen from this folder, where it is below; any other word as it is."""
    path, here = Path(word), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else word
