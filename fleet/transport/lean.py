"""paramiko without invoke, which takes a third of the time of its import.

invoke (80 ms of 215) brings asyncio, unittest and a second YAML, for `Match exec` of an ssh config
alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from types import SimpleNamespace


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
    sys.modules["invoke"] = None  # type: ignore[assignment] # documented: its import fails
    try:
        import paramiko  # noqa: F401, PLC0415
    finally:
        del sys.modules["invoke"]


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
