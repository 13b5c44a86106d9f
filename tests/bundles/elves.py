"""Shared objects for tests, byte by byte: no compiler for a phone or a DSP is needed.

Written from the System V gABI. One segment covers the file, a second one is the dynamic one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

MACHINES = {"x86_64": 62, "hexagon": 164, "aarch64": 183}
_FUNC, _OBJECT = 2, 1
_GLOBAL = 1
BUILD = "2.41.0.251128145156"
ENTRY = "op_pkg_init"


@dataclass(frozen=True)
class Symbol:
    """One dynamic symbol, a defined and visible function by default."""

    name: str
    kind: int = _FUNC
    bind: int = _GLOBAL
    visibility: int = 0
    section: int = 1


def data(name: str) -> Symbol:
    return Symbol(name, kind=_OBJECT)


def undefined(name: str) -> Symbol:
    return Symbol(name, section=0)


def hidden(name: str) -> Symbol:
    return Symbol(name, visibility=2)


def shared_object(
    machine: str = "aarch64",
    symbols: Sequence[str | Symbol] = (ENTRY, "LLaMAPackageInterfaceProvider"),
    *,
    arch: int = 0,
    text: str = f"v{BUILD}_119508",
    needed: Sequence[str] = (),
    android: bool = False,
    gnu: bool = False,
    elf_type: int = 3,
    versions: Sequence[str] = (),
) -> bytes:
    """A shared object: 32 bits wide for Hexagon with `arch` in e_flags, else 64.

    `versions` are symbol versions that it needs of libc.so.6 (GLIBC_2.34).
    `gnu` gives it DT_GNU_HASH instead of DT_HASH; `text` stands in it like any constant.
    """
    wide = machine != "hexagon"
    named = [Symbol(one) if isinstance(one, str) else one for one in symbols]
    names, table = b"\0", bytes(24 if wide else 16)
    for one in named:
        form = (len(names), one.bind << 4 | one.kind, one.visibility, one.section)
        names += one.name.encode() + b"\0"
        at, info, visible, section = form
        if wide:
            table += struct.pack("<IBBHQQ", at, info, visible, section, 0x100, 4)
        else:
            table += struct.pack("<IIIBBH", at, 0x100, 4, info, visible, section)
    libraries = []
    for library in needed:
        libraries.append(len(names))
        names += library.encode() + b"\0"
    verneed = b""
    if versions:
        verneed = struct.pack("<HHIII", 1, len(versions), len(names), 16, 0)
        names += b"libc.so.6\0"
        for index, version in enumerate(versions):
            after = 0 if index + 1 == len(versions) else 16
            verneed += struct.pack("<IHHII", 0, 0, 2, len(names), after)
            names += version.encode() + b"\0"
    note = struct.pack("<III", 8, 4, 1) + b"Android\0" + struct.pack("<I", 21) if android else b""
    hashes = _gnu_hash(len(named), wide=wide) if gnu else _sysv_hash(len(named) + 1)
    return _file(
        wide=wide,
        machine=machine,
        arch=arch,
        elf_type=elf_type,
        tables=[hashes, table, names],
        verneed=verneed,
        versions=1 if versions else 0,
        libraries=libraries,
        note=note,
        text=text,
        gnu=gnu,
    )


def _sysv_hash(count: int) -> bytes:
    return struct.pack("<II", 1, count) + bytes(4 * (count + 1))


def _gnu_hash(count: int, *, wide: bool) -> bytes:
    """One bucket; the chain's last value has its low bit set."""
    head = struct.pack("<IIII", 1, 1, 1, 0) + bytes(8 if wide else 4)
    chain = [2 * (index + 1) for index in range(count)]
    if chain:
        chain[-1] |= 1
    return head + struct.pack(f"<I{count}I", 1 if count else 0, *chain)


def _file(
    *,
    wide: bool,
    machine: str,
    arch: int,
    elf_type: int,
    tables: list[bytes],
    verneed: bytes,
    versions: int,
    libraries: list[int],
    note: bytes,
    text: str,
    gnu: bool,
) -> bytes:
    header, entry = (64, 56) if wide else (52, 32)
    segments = 3 if note else 2
    places, body, at = [], b"", header + segments * entry
    for block in (*tables, note, text.encode() + b"\0", verneed):
        body += bytes(-len(body) % 8)
        places.append(at + len(body))
        body += block
    body += bytes(-(at + len(body)) % 16)
    dynamic_at = at + len(body)
    tags = [
        *((1, one) for one in libraries),
        (0x6FFFFEF5 if gnu else 4, places[0]),
        (6, places[1]),
        (5, places[2]),
        (10, len(tables[2])),
        *(((0x6FFFFFFE, places[5]), (0x6FFFFFFF, versions)) if versions else ()),
        (0, 0),
    ]
    dynamic = b"".join(struct.pack("<qQ" if wide else "<iI", *one) for one in tags)
    size = dynamic_at + len(dynamic)
    parts = [(1, 0, size), (2, dynamic_at, len(dynamic))]
    parts += [(4, places[3], len(note))] if note else []
    programs = b"".join(
        struct.pack("<IIQQQQQQ", kind, 5, start, start, start, length, length, 8)
        if wide
        else struct.pack("<8I", kind, start, start, start, length, length, 5, 8)
        for kind, start, length in parts
    )
    form = "<16sHHIQQQIHHHHHH" if wide else "<16sHHIIIIIHHHHHH"
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1, 1]) + bytes(9)
    head = struct.pack(
        form, ident, elf_type, MACHINES[machine], 1, 0, header, 0, arch, header, entry, segments,
        64 if wide else 40, 0, 0,
    )  # fmt: skip
    return head + programs + body + dynamic
