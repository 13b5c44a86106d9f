"""The libQnnSystem of the runtime store that this host can load."""

from __future__ import annotations

import platform
from pathlib import Path

from fleet.runtimes.store import RuntimeStore

TARGET = "x86_64-linux-clang"


def system_library(store: RuntimeStore) -> Path | None:
    """Return the libQnnSystem.so of the newest x86_64 Linux runtime.

    Returns None on another host, or if the store has no such runtime. An older libQnnSystem reads
    newer files too (2.47 reads 2.51, docs/sources/qairt.md 3), so any version is sufficient. A
    damaged runtime counts as no runtime: the markers are read instead.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return None
    for runtime in store.list():
        path = runtime.root / "lib" / TARGET / "libQnnSystem.so"
        if TARGET in runtime.targets and path.is_file():
            return path
    return None
