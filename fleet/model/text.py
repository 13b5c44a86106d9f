"""Text that is safe to show on a terminal, whatever it contained."""

from __future__ import annotations

import re
from pathlib import Path

from fleet.model.masking import masked

# CSI, OSC and other escape sequences of terminals (ECMA-48), then the remaining control codes.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)?"
    r"|\x1b[PX^_][^\x1b\n]{0,2000}(?:\x1b\\)?|\x1b[ -/]{0,8}[0-~]|\x9b[0-?]{0,64}[@-~]"
)
# Bidirectional controls (UAX #9), line and paragraph separators, and zero-width characters.
_UNSEEN = r"\u061c\u200b-\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff"
_CONTROLS = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_UNSEEN}]")
_NOT_IN_JSON = re.compile(rf"[\x7f-\x9f\ud800-\udfff{_UNSEEN}]")


def harmless(text: str) -> str:
    """Return text without escape sequences, controls, bidirectional controls and revealed
    secrets.
    """
    # the mask may uncover controls
    return masked(_CONTROLS.sub("", _ESCAPES.sub("", masked(text))))


def harmless_json(text: str) -> str:
    r"""Return a JSON document with the same value, with invisible characters as escapes: `\u202e`.

    They occur inside of strings only, where an escape means the same character.
    """
    return _NOT_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def visible(text: str) -> str:
    r"""Return text with every invisible character escaped: `\x1b`, `\u202e`, `\n`.

    A byte that is not UTF-8 (`os.fsdecode`) is shown as the byte: `\xff`.
    """
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return char.encode("unicode_escape", "surrogatepass").decode()


def from_here(word: str) -> str:
    """Return a path relative to the current folder if it is below it; any other word unchanged."""
    path, here = Path(word), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else word
