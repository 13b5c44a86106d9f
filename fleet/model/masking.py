"""Revealed secrets, and their removal from text, because the output of a device may contain one.

A debug module of PAM or a wrapper of sudo prints a password that it was given. Each value that
`Secret.reveal` returned in this process is therefore replaced by `***` in errors, events, the
terminal, JSON, the journal and records. The search covers the plain value, base64 at any offset,
URL quoting, and the escapes of JSON, Python and the shell.
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
SHORT = 4  # characters; shorter secrets are refused, since masking them would damage ordinary words
# RFC 3986 unreserved alone, paths, encodeURIComponent, encodeURI (ECMA-262, 19.2.6)
_UNQUOTED = ("", "/", "!'()*", "!'()*#$&+,/:;=?@")
# Values from fleet itself, never from a device, which programs read again: names, hashes, commands.
OURS = frozenset({
    "run", "run_id", "host", "hosts", "device", "devices", "name", "id", "release", "current",
    "was", "sha256", "prompt_sha256", "runner", "target", "argv", "commands", "undo", "playbook",
    "inventory",
})  # fmt: skip
TABLES = frozenset({"files", "artifacts", "env"})  # name -> hash, path or a value of the playbook
# Keys below `facts` that the probe reads from os-release, uname, the user database and soc0. Runs
# are compared by them, and a masked word would make one system look like two.
FACTS = frozenset({"os_id", "os_version", "kernel", "soc", "user", "base_dir"})

_Data = TypeVar("_Data")


class _Revealed:
    """The values revealed in this process, and the words that everybody may see."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        self.values: frozenset[str] = frozenset()
        self.forms: tuple[str, ...] = ()  # longest first: a form may be part of another one
        self.coded: tuple[bytes, ...] = ()
        self.public: frozenset[str] = frozenset()

    def add(self, text: str) -> None:
        with self._lock:
            self.values |= {text}
            self.forms = tuple(sorted({*self.forms, *_forms(text)}, key=len, reverse=True))
            self.coded = tuple(form.encode("utf-8", "surrogateescape") for form in self.forms)


def _forms(value: str) -> set[str]:
    """Return the value in all the forms in which programs write it."""
    raw = value.encode("utf-8", "surrogateescape")
    hexed = "".join(f"%{byte:02X}" for byte in raw)
    quoted = {hexed, quote_plus(raw), *(quote(raw, safe=safe) for safe in _UNQUOTED)}
    small = {re.sub("%..", lambda match: match[0].lower(), form) for form in quoted}
    escaped = {json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    escaped |= {repr(value)[1:-1], shlex.quote(value).strip("'"), raw.decode("utf-8", "replace")}
    return {value, *quoted, *small, *escaped, *_base64(raw), *_hex(raw)} - {""}


def _hex(raw: bytes) -> Iterator[str]:
    """Yield the value as hexadecimal: plain, by byte (od, hexdump -C), by two (xxd), and escaped.

    A dump that breaks the line inside the value is not recognised.
    """
    for mark in ("", " ", ":"):
        digits = raw.hex(mark) if mark else raw.hex()
        yield from (digits, digits.upper())
    yield from (raw.hex("-"), "".join(f"\\x{byte:02x}" for byte in raw))
    yield from (raw.hex(" ", -2), f"{raw[:1].hex()} {raw[1:].hex(' ', -2)}")


def _base64(raw: bytes) -> Iterator[str]:
    """Yield the base64 text of the value alone, and its stable part at each of the three
    offsets.
    """
    codes = [b64encode(raw).decode()]
    for before in range(3):
        first, end = -(-8 * before // 6), 8 * (before + len(raw)) // 6
        codes.append(b64encode(bytes(before) + raw).decode()[first:end])
    for text in codes:
        yield from (text, text.replace("+", "-").replace("/", "_"))


_revealed = _Revealed()


def reveal(value: str) -> None:
    """Mask `value` from now on."""
    for text in {value, value.strip()} - {""} - _revealed.values:
        _revealed.add(text)


def publish(words: Iterable[str]) -> None:
    """Exempt words from masking where they stand alone.

    A user may have a host `ubuntu-01` and the password `ubuntu`. A word that is a whole secret is
    masked nevertheless.
    """
    _revealed.public |= frozenset(words)


def published(text: str) -> bool:
    """Return True if everybody may see this text, so that it cannot be a secret."""
    return text in _revealed.public


def revealed() -> bool:
    """Return True if there is anything to mask."""
    return bool(_revealed.forms)


def forget() -> None:
    """Forget all revealed values, for tests that share a process."""
    _revealed.clear()


def masked(text: str) -> str:
    """Return the text without the revealed values."""
    forms = [form for form in _revealed.forms if form in text]
    if not forms:
        return text
    words = [word for word in _revealed.public if any(form in word for form in forms)]
    words = sorted({*words} - {*forms}, key=len, reverse=True)
    kept = [rf"(?<![\w.-])(?:{'|'.join(map(re.escape, words))})(?![\w-])"] if words else []
    return re.sub(
        "|".join([*kept, *map(re.escape, forms)]),
        lambda match: match[0] if match[0] in words else MASK,
        text,
    )


def masked_data(value: _Data) -> _Data:
    """Return plain data, a dataclass or a Struct with every text masked.

    Names, hashes and commands in `OURS` are not masked, nor are the facts that identify the system.
    """
    return cast("_Data", _masked(value)) if revealed() else value


def _masked(value: object, spared: frozenset[str] = frozenset()) -> object:
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return _members(value, spared)
    if isinstance(value, list | tuple):
        items = map(_masked, value)
        return tuple(items) if isinstance(value, tuple) else list(items)
    if isinstance(value, Struct):
        from fleet.model.facts import Facts  # noqa: PLC0415 - many commands mask no data

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
    """Return True for a text, or for nested lists of texts."""
    return isinstance(value, str) or (
        isinstance(value, list | tuple) and all(map(_only_text, value))
    )


class StreamMasker:
    """A masker for bytes in pieces; a secret may span two of them."""

    def __init__(self) -> None:
        self._kept = b""

    def take(self, piece: bytes) -> bytes:
        """Return the bytes that can be passed on. A possible start of a secret is held back."""
        data = self._kept + piece
        values = _revealed.coded
        passed = len(data) - max((_begun(data, value) for value in values), default=0)
        safe, at = b"", 0
        for match in _matches(data, values):
            if match.start() >= passed:  # may be the start of a longer secret
                break
            safe, at = safe + data[at : match.start()] + MASK.encode(), match.end()
        passed = max(passed, at)
        self._kept = data[passed:]
        return safe + data[at:passed]

    def end(self) -> bytes:
        """Return the remaining bytes."""
        rest, self._kept = self._kept, b""
        for value in _revealed.coded:
            rest = rest.replace(value, MASK.encode())
        return rest


def _matches(data: bytes, values: Sequence[bytes]) -> Iterator[re.Match[bytes]]:
    """Find the values. If several begin at the same place, the first of `values` wins."""
    there = [re.escape(value) for value in values if value in data]
    return re.finditer(b"|".join(there), data) if there else iter(())


def _begun(data: bytes, value: bytes) -> int:
    """Return the number of bytes at the end of `data` that are the start of `value`."""
    at = max(0, len(data) - len(value) + 1)
    while (at := data.find(value[:1], at)) >= 0:
        if value.startswith(data[at:]):
            return len(data) - at
        at += 1
    return 0
