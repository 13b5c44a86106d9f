"""Secrets that were revealed, and text without them: what a device says may hold one.

A debug module of PAM or a wrapper of sudo prints a password that it was given. So each value that
`Secret.reveal` gave out in this process is replaced by `***` where text leaves it: in errors,
events, on the terminal, in JSON, the journal and records. Sought as it is: not encoded, escaped
or split. A value of fewer than `SHORT` characters is only replaced where it stands alone, between
characters that are no letter, digit or `_`: in the middle of words it would spoil every text.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable

MASK = "***"
SHORT = 4  # characters
# Said by fleet itself, never by a device, and read again by programs: names, hashes, commands.
OURS = frozenset({
    "run", "run_id", "host", "hosts", "device", "devices", "name", "id", "release", "current",
    "was", "sha256", "prompt_sha256", "runner", "target", "argv", "commands", "undo", "playbook",
    "inventory",
})  # fmt: skip
TABLES = frozenset({"files", "artifacts"})  # name -> hash or path


class _Revealed:
    """What was given out in this process."""

    def __init__(self) -> None:
        self.long: tuple[str, ...] = ()  # longest first: one may be a part of another
        self.short: tuple[re.Pattern[str], ...] = ()
        self._lock = threading.Lock()

    def add(self, text: str) -> None:
        with self._lock:
            if len(text) >= SHORT:
                self.long = tuple(sorted({*self.long, text}, key=len, reverse=True))
            elif text:
                pattern = re.compile(rf"(?<!\w){re.escape(text)}(?!\w)")
                self.short = tuple({*self.short, pattern})


_seen = _Revealed()


def reveal(value: str) -> None:
    """From now on `value` is masked."""
    for text in (value, value.strip()):
        if text not in _seen.long:
            _seen.add(text)


def revealed() -> bool:
    """Whether there is anything to mask."""
    return bool(_seen.long or _seen.short)


def forget() -> None:
    """Nothing was revealed: for tests, which share a process."""
    _seen.long, _seen.short = (), ()


def masked(text: str) -> str:
    """The text without what was revealed."""
    for value in _seen.long:
        if value in text:
            text = text.replace(value, MASK)
    for pattern in _seen.short:
        text = pattern.sub(MASK, text)
    return text


def masked_data(value: object) -> object:
    """Plain data of JSON with every text masked but the names, hashes and commands of `OURS`."""
    if not revealed():
        return value
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return {key: one if _ours(key, one) else masked_data(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [masked_data(one) for one in value]
    return value


def _ours(key: object, value: object) -> bool:
    return key in TABLES or (key in OURS and _only_text(value))


def _only_text(value: object) -> bool:
    """A text, or lists of them, however deep."""
    return isinstance(value, str) or (
        isinstance(value, list | tuple) and all(map(_only_text, value))
    )


class Stream:
    """The same for bytes that come in pieces: a secret may lie across two of them."""

    def __init__(self) -> None:
        self._kept = b""

    def take(self, piece: bytes) -> bytes:
        """What can be passed on; what may be the beginning of a secret waits."""
        data = self._kept + piece
        values = [value.encode() for value in _seen.long]
        for value in values:
            data = data.replace(value, MASK.encode())
        keep = max((_begun(data, value) for value in values), default=0)
        self._kept = data[len(data) - keep :]
        return data[: len(data) - keep]

    def end(self) -> bytes:
        """The rest."""
        rest, self._kept = self._kept, b""
        return rest


def _begun(data: bytes, value: bytes) -> int:
    """How many bytes at the end of `data` are the beginning of `value`."""
    sizes: Iterable[int] = range(min(len(data), len(value) - 1), 0, -1)
    return next((size for size in sizes if data.endswith(value[:size])), 0)
