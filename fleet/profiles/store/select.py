"""Selections of records: `last`, a run id, or conditions joined with commas; and their SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleet.model.errors import InputError

# Word of a selection → column. A `*` in a value stands for any text.
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
    """Return the SQL for the row in which a run is listed; each side of a `fleet ab` is one row.

    The sides are never pooled, because their median would be a number that was not measured. Only
    the tags of a warm-up give its side. `table` is the alias of the record table.
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
    """A query: all of its parts must match. Of several values of a word one must match, of tags
    all.

    The keys of `words` are those of COLUMNS. `since` and `until` are beginnings of UTC times in the
    format of records (2026-11-01, 2026-11-01T10:30). `until` includes the times that begin with it.

    `last` ignores runs of `fleet ab`. `back` is the number of runs of the same name to go back from
    the last one. `reference` is a shipped record, and must be the only part. An empty query matches
    every record.
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
        """Return `WHERE ...` for the record table (as r), with its values."""
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
    """Return the text for GLOB, in which only `*` has a special meaning."""
    return text.replace("[", "[[]").replace("?", "[?]")


def _after(until: str) -> str:
    """Return a text that sorts after every time that begins with `until`.

    The character `~` sorts after all characters of times.
    """
    return f"{until}~" if until else ""


def parse(text: str) -> Query:
    """Parse the text of a selection; "" and `all` match every record.

    Raises InputError that names the invalid condition.
    """
    stripped = text.strip()
    if stripped in {"", "all"}:
        return Query(text=stripped)
    last, back, values = False, 0, dict[str, list[str]]()
    for part in stripped.split(","):
        word, colon, value = (piece.strip() for piece in part.partition(":"))
        if not colon and word == "last":
            last = True
        elif not colon and (before := _LAST.fullmatch(word)):
            last, back = True, int(before[1] or 1)
        elif not colon and _RUN.fullmatch(word):
            values.setdefault("run", []).append(word)
        elif not colon or word not in _WORDS:
            raise InputError(
                f"fleet does not know the condition '{part.strip()}' in the selection '{text}'",
                hint=HINT,
            )
        else:
            values.setdefault(word, []).append(_checked(text, word, value))
    return replace(_query(stripped, values, last=last), back=back)


def named(name: str, what: str) -> str:
    """Return the name if a selection can contain it. Raises InputError if not."""
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


def _query(text: str, values: dict[str, list[str]], *, last: bool) -> Query:
    if "reference" in values and (len(values) > 1 or last or len(values["reference"]) > 1):
        raise InputError(
            f"the selection '{text}' combines reference: with other conditions, but reference: "
            "must stand alone",
            hint=f"use only reference:{values['reference'][0]}",
        )
    once = {}
    for word in ("since", "until", "emulated", "counted", "reference"):
        if len(values.get(word, ())) > 1:
            raise InputError(f"the selection '{text}' contains '{word}:' twice", hint=HINT)
        once[word] = next(iter(values.get(word, ())), "").removesuffix("Z")
    return Query(
        text=text,
        last=last,
        words={word: tuple(values[word]) for word in COLUMNS if word in values},
        tags=tuple(values.get("tag", ())),
        baselines=tuple(values.get("baseline", ())),
        emulated=once["emulated"],
        counted=once["counted"],
        since=once["since"],
        until=once["until"],
        reference=once["reference"],
    )
