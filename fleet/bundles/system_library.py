"""Which libQnnSystem of the runtime store this host can load."""

from __future__ import annotations

import platform
from pathlib import Path

from fleet.runtimes.store import RuntimeStore

TARGET = "x86_64-linux-clang"


def system_library(store: RuntimeStore) -> Path | None:
    """libQnnSystem.so of the newest x86_64 Linux runtime; None elsewhere or without one.

    An older libQnnSystem reads newer files too (2.47 reads 2.51, docs/sources/qairt.md 3),
    so any will do. A damaged runtime counts as none: the markers are read instead.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return None
    for runtime in store.list():
        path = runtime.root / "lib" / TARGET / "libQnnSystem.so"
        if TARGET in runtime.targets and path.is_file():
            return path
    return None
