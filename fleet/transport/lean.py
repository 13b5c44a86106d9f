"""paramiko without what takes most of the time of its import and is not needed for it.

invoke, for `Match exec` of an ssh config, brings asyncio, unittest and a second YAML. The
version, for its own banner, brings importlib.metadata with the parsers of mail and zip files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

_METADATA = "importlib.metadata"


@contextmanager
def lightly() -> Iterator[None]:
    """Inside, paramiko is imported as if invoke were not installed, and is told its version."""
    put: dict[str, ModuleType | None] = {"invoke": None, _METADATA: _Versions(_METADATA)}
    put = {name: module for name, module in put.items() if name not in sys.modules}
    sys.modules |= put  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name, module in put.items():
            if sys.modules.get(name, module) is module:
                del sys.modules[name]


def with_invoke() -> None:
    """Give paramiko what was left out."""
    import invoke  # noqa: PLC0415
    import paramiko.config  # noqa: PLC0415

    paramiko.config.invoke = invoke  # type: ignore[attr-defined]


class _Versions(ModuleType):
    """Of importlib.metadata what paramiko asks, for its banner: its own version."""

    @staticmethod
    def version(name: str) -> str:
        """As the folder beside the package is called; `unknown` where there is none."""
        beside = Path(sys.modules[name].__file__ or "").parents[1]
        folders = [one.name for one in beside.glob(f"{name}-*.dist-info")]
        return folders[0].removesuffix(".dist-info").partition("-")[2] if folders else "unknown"
