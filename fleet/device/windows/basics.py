"""What the work on a Windows device stands on: words, small files, the boot. Runs on POSIX too."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Callable

PATIENCE_SECONDS = 5.0  # a virus scanner or a reader holds a file of Windows for a moment


class FailedError(Exception):
    """No lease can be kept here; its text says why."""


def patiently(work: Callable[..., object], *args: object) -> object:
    """Do it again while another process has the file open: Windows refuses renames then."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return work(*args)
        except PermissionError:
            if os.name != "nt" or time.monotonic() > end:
                raise
            time.sleep(0.02)


def boot() -> str:
    """What is another one after each boot; "" when the system does not tell.

    Windows counts its boots (value BootId below PrefetchParameters).
    """
    if sys.platform == "win32":
        import winreg

        path = (
            r"SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management"
            r"\PrefetchParameters"
        )
        with contextlib.suppress(OSError), winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, path) as key:
            return f"boot-{winreg.QueryValueEx(key, 'BootId')[0]}"
        return ""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as stream:
        return stream.read().strip()
    return ""


def uptime() -> int:
    """Whole seconds since the boot."""
    if sys.platform == "win32":
        import ctypes

        count = ctypes.windll.kernel32.GetTickCount64
        count.restype = ctypes.c_ulonglong
        return int(count() // 1000)
    with open("/proc/uptime") as stream:
        return int(float(stream.read().split()[0]))


def say(*words: object) -> None:
    """One line of the answer."""
    sys.stdout.buffer.write((" ".join(map(str, words)) + "\n").encode())
    sys.stdout.buffer.flush()


def line_of(path: str) -> list[str]:
    """The words of the first line of a small file; [] without it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.readline().split()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FailedError(f"{path} cannot be read by this user") from error


def number(text: str) -> int:
    """At most nine digits; -1 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else -1


def put(path: str, text: str, part: str = "") -> None:
    """A small file, whole or not at all. `part`: its name until then, else `<path>.<pid>`.

    A file that stands there is taken away, never written to: it may be a link, also a hard one.
    """
    part = part or f"{path}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        patiently(os.unlink, part)
    with open(part, "x", encoding="utf-8", newline="\n") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    patiently(os.replace, part, path)


def is_file(path: str) -> bool:
    """A regular file that is no link."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
