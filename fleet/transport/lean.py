"""paramiko without invoke, which takes a third of the time of its import (80 ms of 215).

invoke, for `Match exec` of an ssh config, brings asyncio, unittest and a second YAML. paramiko
imports it wherever it is installed, and fabric installs it.
"""

from __future__ import annotations

import sys
import threading


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
    sys.modules["invoke"] = None  # type: ignore[assignment]
    try:
        import paramiko  # noqa: F401, PLC0415
    finally:
        del sys.modules["invoke"]


def with_invoke() -> None:
    """Give paramiko what was left out."""
    import invoke  # noqa: PLC0415
    import paramiko.config  # noqa: PLC0415

    paramiko.config.invoke = invoke  # type: ignore[attr-defined]
