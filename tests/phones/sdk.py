"""A QAIRT SDK of small files that say what they are, for tests of what goes to a phone."""

from __future__ import annotations

from pathlib import Path

from fleet.model.runtime import Runtime
from fleet.runtimes.store import RuntimeStore
from tests.bundles import elves

BUILD = "2.51.0.260929181845"
ANDROID = "aarch64-android"
# lib/aarch64-android of walk-through B, and more that must stay at home.
LIBRARIES = (
    "libQnnHtp.so", "libQnnHtpV75Stub.so", "libQnnHtpPrepare.so", "libQnnHtpProfilingReader.so",
    "libQnnHtpOptraceProfilingReader.so", "libQnnHtpV75CalculatorStub.so", "libQnnSystem.so",
)  # fmt: skip
OTHERS = ("libQnnHtpV73Stub.so", "libQnnGpu.so", "libGenie.so", "libQnnHtpNetRunExtensions.so")
SKEL = "libQnnHtpV75Skel.so"


def sdk(folder: Path) -> Path:
    """`qairt/<build>` with libraries for Android and skels for v75 and v73."""
    root = folder / "qairt" / BUILD
    for name in (*LIBRARIES, *OTHERS):
        _write(root / "lib" / ANDROID / name, elves.shared_object(text=_text(name), android=True))
    for arch, mark in (("v75", 0x75), ("v73", 0x73)):
        name = f"libQnnHtp{arch.upper()}Skel.so"
        data = elves.shared_object("hexagon", arch=mark, text=_text(name))
        _write(root / "lib" / f"hexagon-{arch}" / "unsigned" / name, data)
    return root


def _text(name: str) -> str:
    return f"v{BUILD}_119508 AISW_VERSION: 2.51.0 {name}"


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def store_with_sdk(folder: Path) -> tuple[RuntimeStore, Runtime]:
    """A store that has this SDK and nothing else."""
    store = RuntimeStore(folder / "store")
    return store, store.add(str(sdk(folder / "sdk")))
