"""What no further pair mends: a metric that a side has not, a run that can never be valid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial

from fleet.engine.ab.sides import AbSide
from fleet.engine.measuring.validity import cure_of, lasting, words_of
from fleet.model.errors import DeviceError
from fleet.model.record import Record
from fleet.profiles.compare import metrics as known


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
        if not math.isfinite(known.value(record, name)):
            raise known.lacking(
                name,
                [record],
                f"run of {side}",
                partial(_gate, share),
            )


def _gate(share: float, metric: str) -> str:
    return f"--gate '{known.limit_text(metric, share)}'"


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
