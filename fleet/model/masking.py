"""Secrets that were revealed, and text without them: what a device says may hold one.

A debug module of PAM or a wrapper of sudo prints a password that it was given. So each value that
`Secret.reveal` gave out in this process is replaced by `***` where text leaves it: in errors,
events, on the terminal, in JSON, the journal and records. Sought as it is, in base64 wherever it
stands in what was encoded, URL-quoted, and escaped as JSON, Python and the shell do it.
"""

from __future__ import annotations

import json
import re
import shlex
import threading
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast
from urllib.parse import quote, quote_plus

from msgspec import Struct, structs

MASK = "***"
SHORT = 4  # characters; fewer are refused: masked in the middle of words they would spoil any text
# RFC 3986 unreserved alone, paths, encodeURIComponent, encodeURI (ECMA-262, 19.2.6)
_UNQUOTED = ("", "/", "!'()*", "!'()*#$&+,/:;=?@")
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
    """What was given out in this process, and what everybody may see."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        self.values: frozenset[str] = frozenset()
        self.forms: tuple[str, ...] = ()  # longest first: one may be a part of another
        self.coded: tuple[bytes, ...] = ()
        self.public: frozenset[str] = frozenset()

    def add(self, text: str) -> None:
        with self._lock:
            self.values |= {text}
            self.forms = tuple(sorted({*self.forms, *_forms(text)}, key=len, reverse=True))
            self.coded = tuple(form.encode("utf-8", "surrogateescape") for form in self.forms)


def _forms(value: str) -> set[str]:
    """As it is, and as programs write it down."""
    raw = value.encode("utf-8", "surrogateescape")
    hexed = "".join(f"%{byte:02X}" for byte in raw)
    quoted = {hexed, quote_plus(raw), *(quote(raw, safe=safe) for safe in _UNQUOTED)}
    small = {re.sub("%..", lambda found: found[0].lower(), form) for form in quoted}
    escaped = {json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    escaped |= {repr(value)[1:-1], shlex.quote(value).strip("'"), raw.decode("utf-8", "replace")}
    return {value, *quoted, *small, *escaped, *_base64(raw), *_hex(raw)} - {""}


def _hex(raw: bytes) -> Iterator[str]:
    """Yield it as hexadecimal digits: in one, byte by byte (od, hexdump -C), by two (xxd), escaped.

    A dump that breaks the line inside of it is not found.
    """
    for mark in ("", " ", ":"):
        found = raw.hex(mark) if mark else raw.hex()
        yield from (found, found.upper())
    yield from (raw.hex("-"), "".join(f"\\x{byte:02x}" for byte in raw))
    yield from (raw.hex(" ", -2), f"{raw[:1].hex()} {raw[1:].hex(' ', -2)}")


def _base64(raw: bytes) -> Iterator[str]:
    """What of it is the same whatever stands before and behind, at each of the three places where
    it can begin; and it alone.
    """
    found = [b64encode(raw).decode()]
    for before in range(3):
        first, end = -(-8 * before // 6), 8 * (before + len(raw)) // 6
        found.append(b64encode(bytes(before) + raw).decode()[first:end])
    for text in found:
        yield from (text, text.replace("+", "-").replace("/", "_"))


_seen = _Revealed()


def reveal(value: str) -> None:
    """From now on `value` is masked."""
    for text in {value, value.strip()} - {""} - _seen.values:
        _seen.add(text)


def publish(words: Iterable[str]) -> None:
    """These stay as they are where they stand alone: hosts that the user named `ubuntu-01`, though
    `ubuntu` is the password. One that is a whole secret is masked all the same.
    """
    _seen.public |= frozenset(words)


def published(text: str) -> bool:
    """Whether everybody may see this: no good secret."""
    return text in _seen.public


def revealed() -> bool:
    """Whether there is anything to mask."""
    return bool(_seen.forms)


def forget() -> None:
    """Nothing was revealed: for tests, which share a process."""
    _seen.clear()


def masked(text: str) -> str:
    """The text without what was revealed."""
    found = [form for form in _seen.forms if form in text]
    if not found:
        return text
    words = [word for word in _seen.public if any(form in word for form in found)]
    words = sorted({*words} - {*found}, key=len, reverse=True)
    kept = [rf"(?<![\w.-])(?:{'|'.join(map(re.escape, words))})(?![\w-])"] if words else []
    return re.sub(
        "|".join([*kept, *map(re.escape, found)]),
        lambda match: match[0] if match[0] in words else MASK,
        text,
    )


def masked_data(value: _Data) -> _Data:
    """Return plain data, a dataclass or a Struct with every text masked, except the names, hashes
    and commands of `OURS`, and of facts those that say which system it is.
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
    if isinstance(value, Struct):
        from fleet.model.facts import Facts  # noqa: PLC0415 - many commands mask none

        spared = FACTS if isinstance(value, Facts) else spared
        return structs.replace(value, **_members(structs.asdict(value), spared))
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


class StreamMasker:
    """The same for bytes that come in pieces: a secret may lie across two of them."""

    def __init__(self) -> None:
        self._kept = b""

    def take(self, piece: bytes) -> bytes:
        """What can be passed on; what may be the beginning of a secret waits."""
        data = self._kept + piece
        values = _seen.coded
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
        for value in _seen.coded:
            rest = rest.replace(value, MASK.encode())
        return rest


def _matches(data: bytes, values: Sequence[bytes]) -> Iterator[re.Match[bytes]]:
    """Of several that begin at the same place the first of `values`."""
    there = [re.escape(value) for value in values if value in data]
    return re.finditer(b"|".join(there), data) if there else iter(())


def _begun(data: bytes, value: bytes) -> int:
    """How many bytes at the end of `data` are the beginning of `value`."""
    at = max(0, len(data) - len(value) + 1)
    while (at := data.find(value[:1], at)) >= 0:
        if value.startswith(data[at:]):
            return len(data) - at
        at += 1
    return 0
