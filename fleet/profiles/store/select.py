"""Selections of records: `last`, a run id, or words joined with commas; and their SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleet.model.errors import InputError

# Word of a selection → column. `*` in a value stands for any text.
COLUMNS = {"run": "run_id", "host": "host", "board": "identity"}
COLUMNS |= {word: word for word in ("name", "release", "runtime", "chip", "runner")}
ANSWERS = {"yes": "1", "no": "0", "unknown": "NULL"}
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?)?Z?")
_RUN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.*-]{0,99}")
_LAST = re.compile(r"prev|last~([1-9]\d{0,3})")
_ID = "????????-??????-??????"
# Runs of `fleet ab`: one side of a pair, or a warm-up.
_WARM, _PAIR = f"run_id GLOB '{_ID}-warm'", f"run_id GLOB '{_ID}-[0-9][0-9][0-9].*[ab]'"
OF_AB = f"({_PAIR} OR {_WARM})"
_TAG = f"'tag:ab-' || substr(run_id, 1, {len(_ID)})"


def folded(table: str) -> str:
    """Return the SQL of the row that a run is listed in: each side of one `fleet ab` is one row.

    The sides are never pooled: their median would be a number that nothing measured. A warm-up
    says its side in its tags alone. `table`: the alias of the record table.
    """
    return (
        f"CASE WHEN {_PAIR} THEN {_TAG} || '-' || upper(substr(run_id, -1)) WHEN {_WARM} THEN "  # noqa: S608 - our own
        f"coalesce((SELECT 'tag:' || t.name FROM tag t WHERE t.record = {table}.id AND "
        f"t.name GLOB 'ab-*-[AB]' LIMIT 1), {_TAG}) ELSE run_id END"
    )


_BACK = (
    f"r.run_id = (SELECT run_id FROM record WHERE NOT {OF_AB} AND name = "  # noqa: S608 - our own
    f"(SELECT name FROM record WHERE NOT {OF_AB} ORDER BY at DESC, id DESC LIMIT 1) "
    "GROUP BY run_id ORDER BY max(at) DESC, max(id) DESC LIMIT 1 OFFSET ?)"
)
_NEWEST = (
    f"r.run_id = (SELECT run_id FROM record WHERE NOT {OF_AB} "  # noqa: S608 - our own
    "ORDER BY at DESC, id DESC LIMIT 1)"
)
_WORDS = (*COLUMNS, "tag", "baseline", "emulated", "counted", "since", "until", "reference")
HINT = (
    "write last, prev, last~2, a run id, or conditions joined with commas (= and): "
    "tag:NAME host:NAME board:IDENTITY name:MODEL runtime:2.51.0 chip:QCS9075 "
    "runner:genie release:ID since:2026-11-01 until:2026-11-30T18:00 emulated:yes|no|unknown "
    "counted:yes|no baseline:NAME reference:NAME"
)


@dataclass(frozen=True)
class Query:
    """All of its parts must fit; of several values of one word one must fit, of tags all.

    `words` are the keys of COLUMNS. `since` and `until` are the beginnings of UTC times as
    records have them (2026-11-01, 2026-11-01T10:30); `until` takes in what begins with it.
    `last` is no run of `fleet ab`. `back`: so many runs of the same name before the last one.
    `reference` is a shipped record: that stands alone. Empty: every record.
    """

    text: str = ""
    last: bool = False
    back: int = 0
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    baselines: tuple[str, ...] = ()
    emulated: str = ""
    counted: str = ""
    since: str = ""
    until: str = ""
    reference: str = ""

    def sql(self) -> tuple[str, list[object]]:
        """`WHERE ...` over the table record (as r), with its values."""
        parts: list[str] = []
        values: list[object] = []
        if self.back:
            parts.append(_BACK)
            values.append(self.back)
        elif self.last:
            parts.append(_NEWEST)
        for word, wanted in self.words.items():
            parts.append(_either(word, wanted, values))
        for tag in self.tags:
            parts.append("r.id IN (SELECT record FROM tag WHERE name = ?)")
            values.append(tag)
        for name in self.baselines:
            parts.append("r.id IN (SELECT record FROM baseline_record WHERE baseline = ?)")
            values.append(name)
        if self.emulated:
            parts.append(f"r.emulated IS {ANSWERS[self.emulated]}")
        if self.counted:
            parts.append(f"r.counts = {ANSWERS[self.counted]}")
        for sign, time in ((">=", self.since), ("<", _after(self.until))):
            if time:
                parts.append(f"r.at {sign} ?")
                values.append(time)
        return ("WHERE " + " AND ".join(parts) if parts else ""), values


def _either(word: str, wanted: Sequence[str], values: list[object]) -> str:
    column, either = COLUMNS[word], []
    for value in wanted:
        if word == "runtime":
            either.append(f"(r.{column} = ? OR r.{column} GLOB ?)")
            values += [value, f"{_escaped(value)}.*"]
        elif "*" in value:
            either.append(f"r.{column} GLOB ?")
            values.append(_escaped(value))
        else:
            either.append(f"r.{column} = ?" + (" COLLATE NOCASE" if word == "chip" else ""))
            values.append(value)
    return f"({' OR '.join(either)})"


def _escaped(text: str) -> str:
    """Only `*` keeps its meaning in GLOB."""
    return text.replace("[", "[[]").replace("?", "[?]")


def _after(until: str) -> str:
    """A text above every time that begins with `until`: `~` is above all that times hold."""
    return f"{until}~" if until else ""


def parse(text: str) -> Query:
    """What the text of a selection means; "" and `all` are every record.

    Raises InputError that names the word.
    """
    stripped = text.strip()
    if stripped in {"", "all"}:
        return Query(text=stripped)
    last, back, found = False, 0, dict[str, list[str]]()
    for part in stripped.split(","):
        word, colon, value = (piece.strip() for piece in part.partition(":"))
        if not colon and word == "last":
            last = True
        elif not colon and (before := _LAST.fullmatch(word)):
            last, back = True, int(before[1] or 1)
        elif not colon and _RUN.fullmatch(word):
            found.setdefault("run", []).append(word)
        elif not colon or word not in _WORDS:
            raise InputError(
                f"fleet does not know the condition '{part.strip()}' in the selection '{text}'",
                hint=HINT,
            )
        else:
            found.setdefault(word, []).append(_checked(text, word, value))
    return replace(_query(stripped, found, last=last), back=back)


def named(name: str, what: str) -> str:
    """A name that a selection can hold. Raises InputError."""
    if not NAME.fullmatch(name):
        raise InputError(f"'{name}' is not a {what} name", hint="use letters, digits and _ . + -")
    return name


def _checked(text: str, word: str, value: str) -> str:
    if not value:
        raise InputError(f"the selection '{text}' has no value after '{word}:'", hint=HINT)
    if word in {"since", "until"} and not _TIME.fullmatch(value):
        raise InputError(
            f"'{value}' in the selection '{text}' is not a valid time",
            hint=f"{word}:2026-11-01T10:30 (UTC)",
        )
    if word in {"emulated", "counted"} and value not in ANSWERS:
        raise InputError(
            f"{word} in the selection '{text}' must be yes, no or unknown", hint=f"{word}:no"
        )
    return value


def _query(text: str, found: dict[str, list[str]], *, last: bool) -> Query:
    if "reference" in found and (len(found) > 1 or last or len(found["reference"]) > 1):
        raise InputError(
            f"the selection '{text}' combines reference: with other conditions, but reference: "
            "must stand alone",
            hint=f"use only reference:{found['reference'][0]}",
        )
    once = {}
    for word in ("since", "until", "emulated", "counted", "reference"):
        if len(found.get(word, ())) > 1:
            raise InputError(f"the selection '{text}' contains '{word}:' twice", hint=HINT)
        once[word] = next(iter(found.get(word, ())), "").removesuffix("Z")
    return Query(
        text=text,
        last=last,
        words={word: tuple(found[word]) for word in COLUMNS if word in found},
        tags=tuple(found.get("tag", ())),
        baselines=tuple(found.get("baseline", ())),
        emulated=once["emulated"],
        counted=once["counted"],
        since=once["since"],
        until=once["until"],
        reference=once["reference"],
    )
