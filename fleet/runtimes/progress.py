"""How the store tells how far it is."""

from __future__ import annotations

from collections.abc import Callable

# (what is being done, bytes done, bytes in all or None when not known)
Progress = Callable[[str, int, int | None], None]


def silent(_doing: str, _done: int, _total: int | None) -> None:
    """Tell nobody."""
