"""Register an op package with a real libQnnHtp, in a process of its own: it may crash.

usage: qnn_register.py LIBRARY-FOLDER OP-PACKAGE PROVIDER [TARGET]; prints QNN's answer and what
QNN logged as warning or error. Functions are taken by their place in QnnInterface_t 2.x.
"""

from __future__ import annotations

import ctypes as c
import os
import sys
from pathlib import Path

_BACKEND_CREATE, _REGISTER, _LOG_CREATE = 1, 5, 25
_WARNINGS = 2
_LOG = c.CFUNCTYPE(None, c.c_char_p, c.c_uint32, c.c_uint64, c.c_void_p)


class _Provider(c.Structure):
    _fields_ = (
        ("backend", c.c_uint32),
        ("name", c.c_char_p),
        ("versions", c.c_uint32 * 6),
        ("functions", c.c_void_p * 50),
    )


def _call(provider: _Provider, place: int, *kinds: type) -> c._FuncPointer:
    return c.CFUNCTYPE(c.c_uint64, *kinds)(provider.functions[place])


def main(folder: str, package: str, name: str, target: str | None = None) -> None:
    libc = c.CDLL(None)
    libc.vsnprintf.argtypes = [c.c_void_p, c.c_size_t, c.c_char_p, c.c_void_p]

    def log(form: bytes, _level: int, _time: int, values: int) -> None:
        text = c.create_string_buffer(2048)
        libc.vsnprintf(text, len(text), form, values)
        sys.stdout.write(text.value.decode("utf-8", "replace").rstrip() + "\n")

    library = c.CDLL(str(Path(folder) / "libQnnHtp.so"))
    found = c.POINTER(c.POINTER(_Provider))()
    count = c.c_uint32()
    library.QnnInterface_getProviders(c.byref(found), c.byref(count))
    provider = found[0].contents
    callback = _LOG(log)
    handle, backend = c.c_void_p(), c.c_void_p()
    out = c.POINTER(c.c_void_p)
    create_log = _call(provider, _LOG_CREATE, _LOG, c.c_uint32, out)
    create = _call(provider, _BACKEND_CREATE, c.c_void_p, c.c_void_p, out)
    register = _call(provider, _REGISTER, c.c_void_p, c.c_char_p, c.c_char_p, c.c_char_p)
    create_log(callback, _WARNINGS, c.byref(handle))
    assert create(handle, None, c.byref(backend)) == 0
    for_target = target.encode() if target else None
    answer = register(backend, package.encode(), name.encode(), for_target) & 0xFFFF
    sys.stdout.write(f"answer {answer}\n")
    sys.stdout.flush()
    os._exit(0)  # QNN is not asked to tidy up what it refused


if __name__ == "__main__":
    main(*sys.argv[1:])
