"""A shared object with nothing in it but its name: enough for the loader and for ldconfig.

Written from the ELF-64 specification (System V gABI); no compiler is needed to make a lab.
"""

from __future__ import annotations

import struct

_MACHINES = {"x86_64": 62, "aarch64": 183}
_PT_LOAD, _PT_DYNAMIC = 1, 2
_NULL, _STRTAB, _SYMTAB, _STRSZ, _SYMENT, _SONAME, _HASH = 0, 5, 6, 10, 11, 14, 4
_HEADER, _PROGRAM, _PAGE = 64, 56, 0x1000


def shared_object(soname: str, machine: str = "x86_64") -> bytes:
    """An ELF64 shared object with DT_SONAME `soname`. KeyError for an unknown machine."""
    names = b"\0" + soname.encode() + b"\0"
    start = _HEADER + 2 * _PROGRAM
    hash_at = start
    table = struct.pack("<IIII", 1, 1, 0, 0)  # one bucket, one symbol: the null symbol
    symbols_at = hash_at + len(table)
    symbols = bytes(24)
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
