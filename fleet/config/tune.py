"""Settings for the transfer of data, shared by `--tune` and `strategy: {tune: [...]}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.config.problems import suggest_or_list
from fleet.model.errors import InputError

CARRIERS = ("auto", "paramiko", "ssh")
COMPRESS = ("auto", "always", "never")
SWITCH = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
RATE = r"(?=[0-9.]*[1-9])([0-9]+(?:\.[0-9]+)?) ?([kMG]?)(B|bit)(?:/s|ps)?"


@dataclass(frozen=True)
class TuneSetting:
    """The values of a setting as a pattern, and how to write one.

    `bare`: the name alone means yes.
    """

    pattern: str
    hint: str
    bare: bool = False


def _of(words: tuple[str, ...]) -> TuneSetting:
    return TuneSetting("|".join(words), f"use one of: {', '.join(words)}")


_YES_NO = TuneSetting("|".join(SWITCH), "use yes or no; the name alone means yes", bare=True)
SETTINGS: Mapping[str, TuneSetting] = {
    "carrier": _of(CARRIERS),
    "bandwidth": TuneSetting(RATE, "write it like 50MB/s or 100Mbit/s"),
    "per-hub": TuneSetting("[1-9][0-9]*", "write a whole number of at least 1, like per-hub=2"),
    "compress": _of(COMPRESS),
    "whole": _YES_NO,
    "relay": _YES_NO,
}
PATTERN = "|".join(
    f"{name}(?:=(?:{setting.pattern})){'?' * setting.bare}" for name, setting in SETTINGS.items()
)


def split(word: str) -> tuple[str, str]:
    """Return the name and the value of a word, `yes` for a bare switch. Raises InputError."""
    name, equals, value = word.partition("=")
    known = SETTINGS.get(name)
    if known is None:
        raise InputError(
            f"--tune has no setting '{name}'", hint=suggest_or_list(name, tuple(SETTINGS))
        )
    if known.bare and not equals:
        return name, "yes"
    if not re.fullmatch(known.pattern, value):
        raise InputError(f"--tune {name}: '{value}' is not a known value", hint=known.hint)
    return name, value
