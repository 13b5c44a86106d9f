"""paramiko without what takes half of the time of its import.

invoke (80 ms of 215) brings asyncio, unittest and a second YAML, for `Match exec` of an ssh config
alone. importlib.metadata (20 ms) brings e-mail, to say paramiko's own version.
"""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import threading
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

_METADATA = "importlib.metadata"


def import_early() -> None:
    """Import paramiko as if invoke were not installed.

    For a process of ours, before it starts threads: an import that is refused for a while is
    refused to all of them. Anywhere else it does nothing, and paramiko is imported whole where
    it is needed.
    """
    alone = threading.active_count() == 1
    main = threading.current_thread() is threading.main_thread()
    if not (alone and main) or {"paramiko", "invoke"} & sys.modules.keys():
        return
    instead: dict[str, Any] = {"invoke": None}
    version = _version()
    if version and _METADATA not in sys.modules:
        instead[_METADATA] = _Metadata(version)
    sys.modules.update(instead)
    collecting = gc.isenabled()
    gc.disable()  # imports leave no garbage
    try:
        import paramiko  # noqa: F401, PLC0415
    finally:
        for name, module in instead.items():
            if sys.modules.get(name, instead) is module:
                del sys.modules[name]
        if collecting:
            gc.enable()


def _version() -> str:
    """That of paramiko, by the folder that its installer wrote beside it; "" without one."""
    found = PathFinder.find_spec("paramiko")
    beside = Path(found.origin).parents[1] if found is not None and found.origin else Path()
    names = [path.name for path in beside.glob("paramiko-*.dist-info")] if found else []
    return names[0].split("-")[1].removesuffix(".dist") if len(names) == 1 else ""


class _Metadata(ModuleType):
    """importlib.metadata as paramiko uses it; who wants more of it gets the whole."""

    def __init__(self, version: str) -> None:
        super().__init__(_METADATA)
        self._version = version

    def version(self, name: str) -> str:
        """As it says of paramiko."""
        return self._version if name == "paramiko" else str(self._whole().version(name))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever that has
        return getattr(self._whole(), name)

    def _whole(self) -> Any:  # noqa: ANN401 - a module
        if sys.modules.get(_METADATA) is self:
            del sys.modules[_METADATA]
        return importlib.import_module(_METADATA)


def run_match_exec() -> None:
    """Let paramiko run `Match exec` as ssh does. invoke would read the standard input of ours."""
    import paramiko.config  # noqa: PLC0415

    paramiko.config.invoke = _Shell  # type: ignore[attr-defined]


class _Shell:
    """What paramiko uses of invoke."""

    @staticmethod
    def run(command: str, **_: object) -> SimpleNamespace:
        """`ok` of the result is whether the command ended well."""
        argv = [os.environ.get("SHELL") or "/bin/sh", "-c", command]
        nothing = subprocess.DEVNULL
        done = subprocess.run(argv, stdin=nothing, stdout=nothing, check=False)
        return SimpleNamespace(ok=not done.returncode)
