"""A shared object that contains little more than its name: enough for the loader and ldconfig.

Written from the ELF-64 specification (System V gABI); a lab needs no compiler.
"""

from __future__ import annotations

import struct

_MACHINES = {"x86_64": 62, "aarch64": 183}
_PT_LOAD, _PT_DYNAMIC = 1, 2
_FUNCTION, _SECTION = 0x12, 1  # STB_GLOBAL STT_FUNC, and a section that does not have to exist
_NULL, _STRTAB, _SYMTAB, _STRSZ, _SYMENT, _SONAME, _HASH = 0, 5, 6, 10, 11, 14, 4
_HEADER, _PROGRAM, _PAGE = 64, 56, 0x1000


def shared_object(soname: str, machine: str = "x86_64", exports: tuple[str, ...] = ()) -> bytes:
    """Return an ELF64 shared object with DT_SONAME `soname`.

    Raises KeyError for an unknown machine.

    `exports` are function names. They point into the ELF header instead of code, so the loader can
    find the functions, but no program can call them.
    """
    names = b"\0" + soname.encode() + b"\0"
    symbols = bytes(24)
    for name in exports:
        symbols += struct.pack("<IBBHQQ", len(names), _FUNCTION, 0, _SECTION, _HEADER, 0)
        names += name.encode() + b"\0"
    start = _HEADER + 2 * _PROGRAM
    hash_at = start
    count = 1 + len(exports)
    # The one bucket holds the last symbol. Each symbol links to the one before it; 0 ends the
    # chain.
    table = struct.pack(
        f"<{3 + count}I", 1, count, count - 1, *(max(0, n - 1) for n in range(count))
    )
    table = table.ljust((len(table) + 7) // 8 * 8, b"\0")
    symbols_at = hash_at + len(table)
    names_at = symbols_at + len(symbols)
    dynamic_at = (names_at + len(names) + 15) // 16 * 16
    entries = [
        (_SONAME, 1),
        (_HASH, hash_at),
        (_STRTAB, names_at),
        (_SYMTAB, symbols_at),
        (_STRSZ, len(names)),
        (_SYMENT, 24),
        (_NULL, 0),
    ]
    dynamic = b"".join(struct.pack("<QQ", tag, value) for tag, value in entries)
    size = dynamic_at + len(dynamic)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01" + bytes(9),
        *(3, _MACHINES[machine], 1, 0, _HEADER, 0, 0),
        *(_HEADER, _PROGRAM, 2, 64, 0, 0),
    )
    load = struct.pack("<IIQQQQQQ", _PT_LOAD, 6, 0, 0, 0, size, size, _PAGE)
    inner = struct.pack(
        "<IIQQQQQQ", _PT_DYNAMIC, 6, dynamic_at, dynamic_at, dynamic_at, *(len(dynamic),) * 2, 8
    )
    body = header + load + inner + table + symbols + names
    return body.ljust(dynamic_at, b"\0") + dynamic


# Functions that QNN's stub needs from libcdsprpc (docs/sources/qairt.md 6), among others.
FASTRPC_EXPORTS = (
    "dspqueue_create",
    "dspqueue_read",
    "dspqueue_write",
    "remote_handle64_open",
    "remote_session_control",
    "rpcmem_alloc",
)


def fastrpc_library(soname: str, *, old: bool = False) -> bytes:
    """Return a stand-in for libcdsprpc or a similar library; an old one has no dspqueue."""
    names = tuple(name for name in FASTRPC_EXPORTS if not (old and name.startswith("dspqueue")))
    return shared_object(soname, "x86_64", names)
