"""The text of a selection: `last`, a run id, or words joined with commas."""

from __future__ import annotations

import re

from fleet.model.errors import InputError
from fleet.profiles.store.query import ANSWERS, COLUMNS, Query

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?)?Z?")
_RUN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.*-]{0,99}")
_WORDS = (*COLUMNS, "tag", "baseline", "emulated", "counted", "since", "until", "reference")
HINT = (
    "last, a run id, or words joined with commas (= and): tag:NAME host:NAME board:IDENTITY "
    "name:MODEL runtime:2.51.0 chip:QCS9075 runner:genie since:2026-11-01 until:2026-11-30T18:00 "
    "emulated:yes|no|unknown counted:yes|no baseline:NAME reference:NAME"
)


def parse(text: str) -> Query:
    """What the text of a selection means; "" and `all` are every record.

    Raises InputError that names the word.
    """
    stripped = text.strip()
    if stripped in {"", "all"}:
        return Query(text=stripped)
    last, found = False, dict[str, list[str]]()
    for part in stripped.split(","):
        word, colon, value = (piece.strip() for piece in part.partition(":"))
        if not colon and word == "last":
            last = True
        elif not colon and _RUN.fullmatch(word):
            found.setdefault("run", []).append(word)
        elif not colon or word not in _WORDS:
            raise InputError(f"selection '{text}': '{part.strip()}' is not understood", hint=HINT)
        else:
            found.setdefault(word, []).append(_checked(text, word, value))
    return _query(stripped, found, last=last)


def named(name: str, what: str) -> str:
    """A name that a selection can hold. Raises InputError."""
    if not NAME.fullmatch(name):
        raise InputError(
            f"'{name}' is no name of a {what}", hint="letters, digits and _ . + - only"
        )
    return name


def _checked(text: str, word: str, value: str) -> str:
    if not value:
        raise InputError(f"selection '{text}': nothing stands behind '{word}:'", hint=HINT)
    if word in {"since", "until"} and not _TIME.fullmatch(value):
        raise InputError(
            f"selection '{text}': '{value}' is no time", hint=f"{word}:2026-11-01T10:30 (UTC)"
        )
    if word in {"emulated", "counted"} and value not in ANSWERS:
        raise InputError(f"selection '{text}': {word} is yes, no or unknown", hint=f"{word}:no")
    return value


def _query(text: str, found: dict[str, list[str]], *, last: bool) -> Query:
    if "reference" in found and (len(found) > 1 or last or len(found["reference"]) > 1):
        raise InputError(
            f"selection '{text}': a reference stands alone",
            hint=f"reference:{found['reference'][0]}",
        )
    once = {}
    for word in ("since", "until", "emulated", "counted", "reference"):
        if len(found.get(word, ())) > 1:
            raise InputError(f"selection '{text}': {word} stands twice", hint=HINT)
        once[word] = next(iter(found.get(word, ())), "").removesuffix("Z")
    return Query(
        text=text,
        last=last,
        words={word: tuple(found[word]) for word in COLUMNS if word in found},
        tags=tuple(found.get("tag", ())),
        baselines=tuple(found.get("baseline", ())),
        **once,
    )
