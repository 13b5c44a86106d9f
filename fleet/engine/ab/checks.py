"""What no further pair mends: a metric that a side has not, a run that can never be valid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from fleet.engine.ab.journal import Pair
from fleet.engine.ab.sides import AbSide
from fleet.engine.measuring.validity import cure_of, lasting, words_of
from fleet.model.errors import DeviceError, InputError
from fleet.model.metrics import limit_text
from fleet.model.record import Record
from fleet.profiles.compare import metrics as known
from fleet.profiles.compare.gates import parse, refuse_wrong_way


def check(side: str, made: AbSide, record: Record, limits: Mapping[str, float]) -> None:
    """Raise InputError where a valid run lacks a metric of a gate, DeviceError where it is not
    valid for a reason that stays.
    """
    if any(map(lasting, record.problems)):
        raise not_valid(
            f"fleet stopped the comparison, because no run of {side} can be valid",
            [(side, made, record)],
        )
    if record.problems:
        return
    for name, share in limits.items():
        refuse_wrong_way(parse(limit_text(name, share)), [record], "--gate")
        if not math.isfinite(known.value(record, name)):
            raise known.lacking(
                name,
                [record],
                f"run of {side}",
                partial(_gate, [record], share),
            )

        check_positive(side, record, name)


def check_first(limits: Mapping[str, float], made: AbSide, pair: Pair) -> None:
    """Raise InputError if the first run of B is missing the metric that A has, or measures it in
    another unit.
    """
    record = pair.b
    for name, share in limits.items():
        units = [known.units([side], name) for side in (pair.a, pair.b)]
        if all(units) and units[0] != units[1]:
            words = [", ".join(unit) or "no unit" for unit in units]
            raise InputError(
                f"A measures {name} in {words[0]}, but B in {words[1]}, so they cannot be compared",
                hint="let both programs print the same unit",
            )
        if not math.isfinite(known.value(record, name)):
            option = partial(_gate, [record], share)
            raise known.lacking(name, [record], f"run of B ({made.shown})", option)
        check_positive("B", record, name)


def check_positive(side: str, record: Record, name: str) -> None:
    """Raise DeviceError for a value of 0 or less: no ratio of B and A can be made of it."""
    value = known.value(record, name)
    if value <= 0:
        raise DeviceError(
            f"a run of {side} measured {name} {value:g}; fleet compares only values above 0",
            device=record.host,
            hint=cure_of("", record.host),
        )


def _gate(records: Sequence[Record], share: float, metric: str) -> str:
    return f"--gate '{known.loss_text(metric, share, records)}'"


def not_valid(why: str, runs: Iterable[tuple[str, AbSide, Record]]) -> DeviceError:
    """The error for runs with problems: which side has which, and the file that cures it."""
    bad = [(side, made, record) for side, made, record in runs if record.problems]
    said = [
        f"{side} ({made.shown}): {words_of(problem)}"
        for side, made, record in bad
        for problem in record.problems
    ]
    _, made, record = bad[0]
    cure = cure_of(record.problems[0], record.host, made.playbook_shown)
    return DeviceError(f"{why}: {'; '.join(dict.fromkeys(said))}", device=record.host, hint=cure)
