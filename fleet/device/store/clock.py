"""The base of leases: the boot, its uptime, words of small files. Equivalent to lease.sh."""

from __future__ import annotations

import contextlib
import sys


class FailedError(Exception):
    """No lease can be kept here; the text is the reason."""


def boot() -> str:
    """Return an id that changes with each boot, "" if the system has none.

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
    """Return whole seconds since the boot."""
    if sys.platform == "win32":
        import ctypes

        count = ctypes.windll.kernel32.GetTickCount64
        count.restype = ctypes.c_ulonglong
        return int(count() // 1000)
    with open("/proc/uptime") as stream:
        return int(float(stream.read().split()[0]))


def line_of(path: str) -> list[str]:
    """Return the words of the first line of a small file, [] if it is missing."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.readline().split()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FailedError(f"{path} cannot be read by this user") from error


def number(text: str) -> int:
    """Parse at most nine digits without a leading zero; return -1 for anything else."""
    plain = text.isascii() and text.isdigit() and len(text) <= 9
    return int(text) if plain and str(int(text)) == text else -1
