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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast

MASK = "***"
SHORT = 4  # characters
# Said by fleet itself, never by a device, and read again by programs: names, hashes, commands.
OURS = frozenset({
    "run", "run_id", "host", "hosts", "device", "devices", "name", "id", "release", "current",
    "was", "sha256", "prompt_sha256", "runner", "target", "argv", "commands", "undo", "playbook",
    "inventory",
})  # fmt: skip
TABLES = frozenset({"files", "artifacts", "env"})  # name -> hash, path or what a playbook says
# Below `facts`: what our probe read in os-release, uname, the user database and soc0. Runs are
# compared by it, and a password that is a word of it would make two systems of one.
FACTS = frozenset({"os_id", "os_version", "kernel", "soc", "user", "base_dir"})

_Data = TypeVar("_Data")


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


def masked_data(value: _Data) -> _Data:
    """Plain data, or a dataclass of such, with every text masked but the names, hashes and
    commands of `OURS`, and of facts those that say which system it is.
    """
    return cast("_Data", _masked(value)) if revealed() else value


def _masked(value: object, spared: frozenset[str] = frozenset()) -> object:
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return _members(value, spared)
    if isinstance(value, list | tuple):
        found = map(_masked, value)
        return tuple(found) if isinstance(value, tuple) else list(found)
    if is_dataclass(value) and not isinstance(value, type):
        members = {field.name: getattr(value, field.name) for field in fields(value)}
        return replace(value, **_members(members, spared))
    return value


def _members(members: Mapping[str, object], spared: frozenset[str]) -> dict[str, object]:
    return {
        key: member
        if key in spared or _ours(key, member)
        else _masked(member, FACTS if key == "facts" else frozenset())
        for key, member in members.items()
    }


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
        passed = len(data) - max((_begun(data, value) for value in values), default=0)
        found, at = b"", 0
        for match in _matches(data, values):
            if match.start() >= passed:  # it may be the beginning of a longer one
                break
            found, at = found + data[at : match.start()] + MASK.encode(), match.end()
        passed = max(passed, at)
        self._kept = data[passed:]
        return found + data[at:passed]

    def end(self) -> bytes:
        """The rest."""
        rest, self._kept = self._kept, b""
        for value in _seen.long:
            rest = rest.replace(value.encode(), MASK.encode())
        return rest


def _matches(data: bytes, values: Sequence[bytes]) -> Iterator[re.Match[bytes]]:
    """Of several that begin at the same place the first of `values`."""
    return re.finditer(b"|".join(map(re.escape, values)), data) if values else iter(())


def _begun(data: bytes, value: bytes) -> int:
    """How many bytes at the end of `data` are the beginning of `value`."""
    sizes: Iterable[int] = range(min(len(data), len(value) - 1), 0, -1)
    return next((size for size in sizes if data.endswith(value[:size])), 0)
