"""paramiko without invoke, which only `Match exec` of an ssh config needs.

invoke brings asyncio, unittest and a second YAML: half of the time of paramiko's import.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_invoke() -> Iterator[None]:
    """Inside, paramiko is imported as if invoke were not installed."""
    if "invoke" in sys.modules:
        yield
        return
    sys.modules["invoke"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["invoke"]


def with_invoke() -> None:
    """Give paramiko what was left out."""
    import invoke  # noqa: PLC0415
    import paramiko.config  # noqa: PLC0415

    paramiko.config.invoke = invoke  # type: ignore[attr-defined]
