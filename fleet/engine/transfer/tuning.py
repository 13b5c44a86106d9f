"""The options of bulk transfers as words: `carrier=ssh`, `relay`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fleet.config.tune import SWITCH, split
from fleet.engine.transfer.context import TransferOptions
from fleet.engine.transfer.limits import parse_rate

_READ: Mapping[str, Callable[[str], Any]] = {
    "carrier": str,
    "bandwidth": parse_rate,
    "per-hub": int,
    "compress": str,
    "whole": SWITCH.__getitem__,
    "relay": SWITCH.__getitem__,
}


def options_of(words: Iterable[str]) -> TransferOptions:
    """Return the options in the words; the last word of a name wins. Raises InputError."""
    options = {name.replace("-", "_"): _READ[name](value) for name, value in map(split, words)}
    return TransferOptions(**options)
