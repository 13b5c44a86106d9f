"""Which records are meant, and the SQL that finds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Word of a selection → column. `*` in a value stands for any text.
COLUMNS = {
    "run": "run_id",
    "host": "host",
    "board": "identity",
    "name": "name",
    "runtime": "runtime",
    "chip": "chip",
    "runner": "runner",
}
ANSWERS = {"yes": "1", "no": "0", "unknown": "NULL"}


@dataclass(frozen=True)
class Query:
    """All of its parts must fit; of several values of one word one must fit, of tags all.

    `words` are the keys of COLUMNS. `since` and `until` are the beginnings of UTC times as
    records have them (2026-11-01, 2026-11-01T10:30); `until` takes in what begins with it.
    `reference` is a shipped record: that stands alone. Empty: every record.
    """

    text: str = ""
    last: bool = False
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
        if self.last:
            parts.append("r.run_id = (SELECT run_id FROM record ORDER BY at DESC, id DESC LIMIT 1)")
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
    for one in wanted:
        if word == "runtime":
            either.append(f"(r.{column} = ? OR r.{column} GLOB ?)")
            values += [one, f"{_escaped(one)}.*"]
        elif "*" in one:
            either.append(f"r.{column} GLOB ?")
            values.append(_escaped(one))
        else:
            either.append(f"r.{column} = ?" + (" COLLATE NOCASE" if word == "chip" else ""))
            values.append(one)
    return f"({' OR '.join(either)})"


def _escaped(text: str) -> str:
    """Only `*` keeps its meaning in GLOB."""
    return text.replace("[", "[[]").replace("?", "[?]")


def _after(until: str) -> str:
    """A text above every time that begins with `until`: `~` is above all that times hold."""
    return f"{until}~" if until else ""
