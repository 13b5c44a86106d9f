"""The loader's view of a shared object: the libraries that it needs, the functions that it exports.

The data is read from the dynamic segment, so that stripped files can be read too. The formats are
little-endian ELF32 (Hexagon) and ELF64. Every offset is checked against the size of the file.
Source: System V gABI chapter 5; the GNU hash table as glibc and bionic read it.

pyelftools is not used, because it builds every hash table as a list of numbers. That takes 6 s for
a wrong count in a file of 33 MB. It also takes 25 times as long for the symbols.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from fleet.runtimes.scan import elf_segments

Image = bytes | mmap.mmap
_PROGRAM, _SHARED = 2, 3  # a program that is not a PIE; a library or a PIE
_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_NEEDED, _HASH, _STRTAB, _SYMTAB, _STRSZ, _GNU_HASH = 1, 4, 5, 6, 10, 0x6FFFFEF5
_VERNEED, _VERNEEDNUM, _HEXAGON = 0x6FFFFFFE, 0x6FFFFFFF, 164
_GLIBC = re.compile(r"GLIBC_(\d+(?:\.\d+)*)")
_GLOBAL, _WEAK, _FUNC, _IFUNC = 1, 2, 2, 10
_DEFAULT, _PROTECTED = 0, 3


class NotReadableError(ValueError):
    """An error for bytes that are not a complete ELF file; its text is the reason.

    The error never leaves fleet.bundles.
    """


@dataclass(frozen=True)
class Dynamic:
    """The dynamic symbols of a shared object.

    `functions` are exported and defined in the file. `others` has every other name with the reason
    why it is not an exported function. `needed` are names of libraries. `android` is True for a
    file with Android's own note.
    """

    functions: frozenset[str]
    others: dict[str, str]
    needed: tuple[str, ...]
    android: bool


def read_dynamic(data: bytes) -> Dynamic:
    """Read the dynamic segment of a shared object. Raises NotReadableError for another file."""
    if _kind(data) != _SHARED:
        raise NotReadableError("the file is not a shared object (.so)")
    try:
        return _Reader(data).dynamic()
    except (struct.error, OverflowError) as error:
        raise NotReadableError("the file is truncated") from error


@dataclass(frozen=True)
class Linked:
    """The names of the `needed` libraries, and the versions of the glibc symbols that are used."""

    needed: tuple[str, ...]
    glibc: tuple[tuple[int, ...], ...]


def read_linked(data: Image) -> Linked | None:
    """Return the linked libraries of a library or program for a CPU.

    The result is empty for a static program, and None for code of a DSP. Raises NotReadableError
    for any other file.
    """
    if _kind(data) not in {_PROGRAM, _SHARED}:
        raise NotReadableError("the file is neither a program nor a shared object (.so)")
    if struct.unpack_from("<H", data, 18)[0] == _HEXAGON:
        return None
    try:
        return _Reader(data).linked()
    except (struct.error, OverflowError) as error:
        raise NotReadableError("the file is truncated") from error


def _kind(data: Image) -> int:
    """Return e_type of the ELF header. Raises NotReadableError."""
    if data[:4] != b"\x7fELF":
        raise NotReadableError("the file is not an ELF file")
    if len(data) < 52 or data[4] not in {1, 2} or data[5] != 1:
        raise NotReadableError("the ELF header is truncated, or is for an unknown CPU")
    (kind,) = struct.unpack_from("<H", data, 16)
    return int(kind)


class _Reader:
    def __init__(self, data: Image) -> None:
        self._data = data
        self._wide = data[4] == 2
        self._segments = list(elf_segments(data))
        end = max((segment.offset + segment.size for segment in self._segments), default=0)
        if end > len(data):
            raise NotReadableError(
                f"the file is truncated: it has {len(data)} bytes, but its header describes {end}"
            )

    def dynamic(self) -> Dynamic:
        entries = list(self._entries())
        table = dict(entries)
        if _SYMTAB not in table:
            raise NotReadableError("the file has no table of dynamic symbols")
        names = self._names(table)
        symbols = self._symbols(table, names)
        return Dynamic(
            functions=frozenset(name for name, why in symbols.items() if not why),
            others={name: why for name, why in symbols.items() if why},
            needed=_needed(entries, names),
            android=b"Android\0" in self._owners(),
        )

    def linked(self) -> Linked:
        if all(part.kind != _PT_DYNAMIC for part in self._segments):
            return Linked((), ())
        entries = list(self._entries())
        table = dict(entries)
        names = self._names(table)
        matches = [_GLIBC.fullmatch(name) for name in self._versions(table, names)]
        glibc = {tuple(map(int, match[1].split("."))) for match in matches if match}
        return Linked(_needed(entries, names), tuple(sorted(glibc)))

    def _versions(self, table: dict[int, int], names: bytes) -> Iterator[str]:
        """Yield the symbol versions of other libraries (Elf64_Verneed and Elf64_Vernaux)."""
        if not {_VERNEED, _VERNEEDNUM} <= set(table):
            return
        at = self._place(table[_VERNEED])
        for _ in range(table[_VERNEEDNUM]):
            count, auxiliary, following = struct.unpack_from("<2xH4xII", self._data, at)
            entry = at + auxiliary
            for _ in range(count):
                name, after = struct.unpack_from("<8xII", self._data, entry)
                yield _name(names, name)
                entry += after
            at += following

    def _names(self, table: dict[int, int]) -> bytes:
        if not {_STRTAB, _STRSZ} <= set(table):
            raise NotReadableError("the file has no table of dynamic symbols")
        start = self._place(table[_STRTAB])
        return self._data[start : start + table[_STRSZ]]

    def _entries(self) -> Iterator[tuple[int, int]]:
        segment = next((part for part in self._segments if part.kind == _PT_DYNAMIC), None)
        if segment is None:
            raise NotReadableError("the file has no dynamic segment")
        form = "<qQ" if self._wide else "<iI"
        whole = segment.size - segment.size % struct.calcsize(form)
        table = self._data[segment.offset : segment.offset + whole]
        for tag, value in struct.iter_unpack(form, table):
            if tag == 0:
                return
            yield tag, value

    def _place(self, address: int) -> int:
        """Return the file offset of a virtual address. Raises NotReadableError."""
        for part in self._segments:
            if part.kind == _PT_LOAD and part.address <= address < part.address + part.size:
                return part.offset + address - part.address
        raise NotReadableError("the file is truncated: its symbol tables are missing")

    def _symbols(self, table: dict[int, int], names: bytes) -> dict[str, str]:
        """Return each symbol with the reason why it is not an exported function.

        The reason is "" for an exported function.
        """
        form = "<IBBH16x" if self._wide else "<I8xBBH"
        size = struct.calcsize(form)
        start = self._place(table[_SYMTAB]) + size  # the first one is empty
        end = start + size * max(0, self._count(table) - 1)
        if end > len(self._data):
            raise NotReadableError("the file is truncated in its symbol table")
        reasons: dict[str, str] = {}
        for index, info, other, section in struct.iter_unpack(form, self._data[start:end]):
            name = _name(names, index)
            if reasons.get(name) != "":
                reasons[name] = _not_exported(info, other & 3, section)
        return reasons

    def _count(self, table: dict[int, int]) -> int:
        if _HASH in table:
            (count,) = struct.unpack_from("<4xI", self._data, self._place(table[_HASH]))
            return int(count)
        if _GNU_HASH in table:
            return self._gnu_count(self._place(table[_GNU_HASH]))
        raise NotReadableError(
            "the file has no symbol hash table, so no loader can find its symbols"
        )

    def _gnu_count(self, at: int) -> int:
        """Return the index after the last symbol: the end of the chain that begins last."""
        buckets, first, bloom = struct.unpack_from("<III", self._data, at)
        start = at + 16 + bloom * (8 if self._wide else 4)
        chain = start + 4 * buckets
        if chain > len(self._data):
            raise NotReadableError("the file is truncated in its symbol hash table")
        last = int(max(struct.unpack_from(f"<{buckets}I", self._data, start), default=0))
        if last < first:
            return int(first)
        while not struct.unpack_from("<I", self._data, chain + 4 * (last - first))[0] & 1:
            last += 1
        return last + 1

    def _owners(self) -> Iterator[bytes]:
        """Yield the owners of all notes.

        Android's compiler driver writes its own note into every file.
        """
        for segment in self._segments:
            at, end = segment.offset, segment.offset + segment.size
            while segment.kind == _PT_NOTE and at + 12 <= end:
                owner, length = struct.unpack_from("<II", self._data, at)
                yield self._data[at + 12 : at + 12 + owner]
                at += 12 + (owner + 3) // 4 * 4 + (length + 3) // 4 * 4


def _needed(entries: list[tuple[int, int]], names: bytes) -> tuple[str, ...]:
    return tuple(_name(names, value) for tag, value in entries if tag == _NEEDED)


def _not_exported(info: int, visible: int, section: int) -> str:
    if section == 0:
        return "is not defined in the library, which only imports this function"
    if info >> 4 not in {_GLOBAL, _WEAK} or visible not in {_DEFAULT, _PROTECTED}:
        return "has hidden visibility in the library"
    return "" if info & 15 in {_FUNC, _IFUNC} else "is not a function in the library"


def _name(names: bytes, index: int) -> str:
    end = names.find(b"\0", index)
    if end < 0 or index > len(names):
        raise NotReadableError("the file is truncated in its table of symbol names")
    return names[index:end].decode("utf-8", "backslashreplace")
