"""Selections of records, and the comparison of two selections as a user requested it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleet.model.errors import InputError
from fleet.model.metrics import KNOWN
from fleet.model.record import Record
from fleet.profiles import references
from fleet.profiles.compare import gates
from fleet.profiles.compare.comparing import MARGIN, Comparison, compare
from fleet.profiles.compare.gates import Gate
from fleet.profiles.compare.groups import RecordGroup, group
from fleet.profiles.compare.metrics import every, lacking, present
from fleet.profiles.runs import read_records
from fleet.profiles.store import ProfileStore, select


def group_of(text: str, store: ProfileStore) -> RecordGroup:
    """Return the records of a selection, or of a file or folder if one of that name exists.

    Raises InputError if there are none.
    """
    path = Path(text)
    if path.suffix in {".json", ".jsonl"} or ("/" in text and path.exists()):
        return group(text, read_records(path))
    query = select.parse(text)
    records = store.records(query)
    last = store.records(select.parse("last")) if query.back and not records else ()
    if last:
        have = "only one run" if query.back == 1 else f"not {query.back + 1} runs"
        raise InputError(
            f"'{text}' matches no run, because there is {have} of {last[0].name} (those of "
            "`fleet ab` do not count)",
            hint="fleet run PLAYBOOK (measures the other variant)",
        )
    if not records:
        raise InputError(f"no stored run matches '{text}'", hint="fleet profiles list")
    return group(text, records)


def compare_groups(
    sides: tuple[RecordGroup, RecordGroup],
    asked: Sequence[Gate] = (),
    metrics: Sequence[str] = (),
    margin: float = MARGIN,
    vary: Sequence[str] = (),
) -> Comparison:
    """Return the comparison of both sides; it includes every metric that a gate names.

    Raises InputError for a metric that no record has, and for an unknown condition in `vary`.
    """
    a, b = (_fitting_figure(mine, other) for mine, other in (sides, sides[::-1]))
    records = [*a.records, *b.records]
    refuse_unknown(metrics, records)
    for gate in asked:
        gates.refuse_wrong_way(gate, records)
    names = list(metrics) or present(a.records)
    names = list(dict.fromkeys([*names, *(gate.metric for gate in asked if gate.metric)]))
    gated = gates.named(asked, names)
    return compare(a, b, names, margin=margin, vary=vary, gated=gated)


def _fitting_figure(mine: RecordGroup, other: RecordGroup) -> RecordGroup:
    """Return the group; of several published figures only the figure that fits the other side."""
    if len(mine.records) < 2 or any("published" not in record.tags for record in mine.records):
        return mine
    return group(mine.label, references.one_of(mine.label, mine.records, other.records))


def refuse_unknown(metrics: Sequence[str], records: Sequence[Record]) -> None:
    """Raise InputError for a name given with `--metric` that is not the name of a metric."""
    there = {*KNOWN, *every(records)}
    for name in metrics:
        if records and name not in there:
            raise lacking(name, records, "run", lambda near: f"--metric {near}")
