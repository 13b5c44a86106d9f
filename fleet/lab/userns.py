"""`python -m fleet.lab.userns QEMU CMD...`: CMD in a user namespace where arm64 programs start.

binfmt_misc belongs to a user namespace since Linux 6.7. Nothing is registered with the host, and
the entry disappears with the last process. `$M` is the root of CMD; user ids stay the same.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_NEWNS, _NEWUSER, _PRIVATE = 0x20000, 0x10000000, 0x40000 | 0x4000
_MAGIC = rb"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
_MASK = rb"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"


def main() -> None:
    """Enter the namespace, register qemu, and execute CMD. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *words: object) -> None:
        if getattr(libc, name)(*words):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)

    proc, here = os.environ.get("M", "") + "/proc", os.getpid()
    near, far = os.pipe()
    helper = os.fork()
    if not helper:  # stays outside, and may map the users
        os.close(far)
        os.read(near, 1)
        for kind in ("uid", "gid"):
            Path(f"{proc}/{here}/{kind}_map").write_text("0 0 65536", "ascii")
        os._exit(0)
    call("unshare", _NEWUSER | _NEWNS)
    os.close(near)
    os.close(far)
    if os.waitpid(helper, 0)[1]:
        raise OSError("the users of the namespace could not be mapped")
    call("mount", None, b"/", None, _PRIVATE, None)
    place = f"{proc}/sys/fs/binfmt_misc"
    call("mount", b"binfmt_misc", place.encode(), b"binfmt_misc", 0, None)
    entry = b":arm64:M::" + _MAGIC + b":" + _MASK + b":" + sys.argv[1].encode() + b":OCF"
    Path(f"{place}/register").write_bytes(entry)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606


if __name__ == "__main__":
    main()
