"""What the loader of a shared object would see: what it needs, and the functions it offers.

Read from the dynamic segment, so that a stripped file answers too. Little-endian ELF32
(Hexagon) and ELF64. Every offset is checked against the file: nothing in it is believed.
Source: System V gABI chapter 5; GNU hash table as glibc and bionic read it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_SHARED = 3
_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_NEEDED, _HASH, _STRTAB, _SYMTAB, _STRSZ, _GNU_HASH = 1, 4, 5, 6, 10, 0x6FFFFEF5
_GLOBAL, _WEAK, _FUNC, _IFUNC = 1, 2, 2, 10
_DEFAULT, _PROTECTED = 0, 3


class NotReadableError(ValueError):
    """The bytes are no whole shared object; the text says why. Never leaves fleet.bundles."""


@dataclass(frozen=True)
class Dynamic:
    """`functions` are exported and defined here; `others` is name → why it is not one of them.

    `needed` are names of libraries. `android` is True for a file with Android's own note.
    """

    functions: frozenset[str]
    others: dict[str, str]
    needed: tuple[str, ...]
    android: bool


@dataclass(frozen=True)
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


def read_dynamic(data: bytes) -> Dynamic:
    """The dynamic segment of a shared object. Raises NotReadableError for anything else."""
    try:
        return _Reader(data).dynamic()
    except (struct.error, OverflowError) as error:
        raise NotReadableError("it is cut off") from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        if data[:4] != b"\x7fELF":
            raise NotReadableError("it is no ELF file")
        if len(data) < 52 or data[4] not in {1, 2} or data[5] != 1:
            raise NotReadableError("its header is cut off, or not that of a device's file")
        self._data = data
        self._wide = data[4] == 2
        (kind,) = struct.unpack_from("<H", data, 16)
        if kind != _SHARED:
            raise NotReadableError("it is no shared object (an object file or a program?)")
        self._segments = tuple(self._read_segments())
        for one in self._segments:
            if one.offset + one.size > len(data):
                end = one.offset + one.size
                raise NotReadableError(f"it has {len(data)} bytes and its header speaks of {end}")

    def _read_segments(self) -> Iterator[_Segment]:
        head, at = ("<Q", 32) if self._wide else ("<I", 28)
        (start,) = struct.unpack_from(head, self._data, at)
        length, count = struct.unpack_from("<HH", self._data, 54 if self._wide else 42)
        form = "<I4xQQ8xQ" if self._wide else "<III4xI"
        if length < struct.calcsize(form):
            raise NotReadableError("its program header has entries of a wrong size")
        for index in range(count):
            yield _Segment(*struct.unpack_from(form, self._data, start + index * length))

    def dynamic(self) -> Dynamic:
        entries = list(self._entries())
        table = dict(entries)
        if not {_STRTAB, _STRSZ, _SYMTAB} <= set(table):
            raise NotReadableError("it has no table of dynamic symbols")
        start = self._place(table[_STRTAB])
        names = self._data[start : start + table[_STRSZ]]
        functions, others = self._symbols(table, names)
        return Dynamic(
            functions=frozenset(functions),
            others={name: why for name, why in others.items() if name not in functions},
            needed=tuple(_name(names, value) for tag, value in entries if tag == _NEEDED),
            android=any(self._is_android(one) for one in self._segments if one.kind == _PT_NOTE),
        )

    def _entries(self) -> Iterator[tuple[int, int]]:
        segment = next((one for one in self._segments if one.kind == _PT_DYNAMIC), None)
        if segment is None:
            raise NotReadableError("it has no dynamic segment")
        form = "<qQ" if self._wide else "<iI"
        step = struct.calcsize(form)
        for at in range(segment.offset, segment.offset + segment.size - step + 1, step):
            tag, value = struct.unpack_from(form, self._data, at)
            if tag == 0:
                return
            yield tag, value

    def _place(self, address: int) -> int:
        """File offset of a virtual address."""
        for one in self._segments:
            if one.kind == _PT_LOAD and one.address <= address < one.address + one.size:
                return one.offset + address - one.address
        raise NotReadableError("its tables lie outside of the file")

    def _symbols(self, table: dict[int, int], names: bytes) -> tuple[set[str], dict[str, str]]:
        start = self._place(table[_SYMTAB])
        functions: set[str] = set()
        others: dict[str, str] = {}
        form = "<IBBH16x" if self._wide else "<I8xBBH"
        for at in range(1, self._count(table)):
            where = start + at * struct.calcsize(form)
            index, info, visible, section = struct.unpack_from(form, self._data, where)
            name = _name(names, index)
            why = _not_exported(info, visible & 3, section)
            if why:
                others[name] = why
            else:
                functions.add(name)
        return functions, others

    def _count(self, table: dict[int, int]) -> int:
        if _HASH in table:
            (count,) = struct.unpack_from("<4xI", self._data, self._place(table[_HASH]))
        elif _GNU_HASH in table:
            count = self._gnu_count(self._place(table[_GNU_HASH]))
        else:
            raise NotReadableError("it has no hash table of its symbols: no loader finds them")
        return int(count)

    def _gnu_count(self, at: int) -> int:
        """One more than the last symbol: the end of the chain that begins last."""
        buckets, first, bloom = struct.unpack_from("<III", self._data, at)
        start = at + 16 + bloom * (8 if self._wide else 4)
        if start + 4 * buckets > len(self._data):
            raise NotReadableError("its hash table is cut off")
        last = max(struct.unpack_from(f"<{buckets}I", self._data, start), default=0)
        if last < first:
            return int(first)
        chain = start + 4 * buckets
        while True:
            (value,) = struct.unpack_from("<I", self._data, chain + 4 * (last - first))
            last += 1
            if value & 1:
                return int(last)

    def _is_android(self, segment: _Segment) -> bool:
        """Android's compiler driver puts a note of owner `Android` into every file."""
        at, end = segment.offset, segment.offset + segment.size
        while at + 12 <= end:
            owner, length = struct.unpack_from("<II", self._data, at)
            if self._data[at + 12 : at + 12 + owner] == b"Android\0":
                return True
            at += 12 + (owner + 3) // 4 * 4 + (length + 3) // 4 * 4
        return False


def _not_exported(info: int, visible: int, section: int) -> str:
    if section == 0:
        return "is undefined there: the library uses it and does not have it"
    if info >> 4 not in {_GLOBAL, _WEAK} or visible not in {_DEFAULT, _PROTECTED}:
        return "is hidden there"
    return "" if info & 15 in {_FUNC, _IFUNC} else "is no function there"


def _name(names: bytes, index: int) -> str:
    end = names.find(b"\0", index)
    if end < 0 or index > len(names):
        raise NotReadableError("the names of its symbols are cut off")
    return names[index:end].decode("utf-8", "backslashreplace")
