"""What leases stand on: the boot, its seconds, words of small files. As lease.sh has them."""

from __future__ import annotations

import contextlib
import sys


class FailedError(Exception):
    """No lease can be kept here; its text says why."""


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
    """At most nine digits without a zero before them; -1 for anything else."""
    plain = text.isascii() and text.isdigit() and len(text) <= 9
    return int(text) if plain and str(int(text)) == text else -1
