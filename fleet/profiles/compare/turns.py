"""The order of measurement of two sides, and the unit of their values: a run or a boot.

Differences between days and boots affect both sides equally only if the sides alternate. If the
sides were measured one after the other, these differences are part of the change, and no test can
separate them: docs/compare.md.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from fleet.model.gates import LEAST_REPEATS
from fleet.model.record import Record

FAR_HOURS = 6.0


def apart(a: Sequence[Record], b: Sequence[Record]) -> tuple[str, str, str] | None:
    """Return why the sides cannot be compared (`boot` or `time`), a label for A and one for B.

    Returns None if the sides alternate. Also returns None if they were measured within FAR_HOURS,
    each in enough boots of its own that boots are the unit.

    If both sides were measured in one boot, one after the other, a board that warms up or a clock
    that sticks looks like a change by B. No test can separate the two, so enough runs for a verdict
    must alternate. Fewer runs get no verdict anyway. Unknown values are not a reason.
    """
    boards = [{record.identity or record.host for record in side} for side in (a, b)]
    if boards[0] != boards[1] or len(boards[0]) != 1 or _in_turns(a, b):
        return None
    first, second = _middle(a), _middle(b)
    boots = [_boots(side) for side in (a, b)]
    own = boots[0].isdisjoint(boots[1]) and min(map(len, boots)) >= LEAST_REPEATS
    judged = min(len({record.run_id for record in side}) for side in (a, b)) >= LEAST_REPEATS
    far = first and second and abs(second - first) > timedelta(hours=FAR_HOURS)
    if first and second and (far or (judged and boots[0] == boots[1])):
        return "time", f"{first:%Y-%m-%d %H:%M}", f"{second:%Y-%m-%d %H:%M}"
    if not all(boots) or boots[0] == boots[1] or own:
        return None
    words = [", ".join(sorted(boot[:8] for boot in side)[:3]) for side in boots]
    return "boot", words[0], words[1]


def boot_is_unit(a: Sequence[Record], b: Sequence[Record]) -> bool:
    """Return True if the boot is the unit: every boot is known, and none has runs of both sides."""
    boots = [_boots(side) for side in (a, b)]
    return bool(all(boots)) and boots[0].isdisjoint(boots[1])


def _boots(records: Sequence[Record]) -> set[str]:
    """Return the boots of the records; an empty set if any boot is unknown."""
    boots = {record.conditions.boot_id for record in records}
    return set() if "" in boots else boots


def _in_turns(a: Sequence[Record], b: Sequence[Record]) -> bool:
    """Return True if the runs of A and B alternate.

    That is the case if the side changes at least min(runs of A, runs of B) - 1 times, and at least
    twice. If the boot is the unit, boots are counted instead of runs.
    """
    by_boot = boot_is_unit(a, b)
    began: dict[tuple[str, str], str] = {}
    for word, side in (("a", a), ("b", b)):
        for record in side:
            key = (word, record.conditions.boot_id if by_boot else record.run_id)
            began[key] = min(began.get(key, record.started), record.started)
    order = [word for _, word in sorted((at, word) for (word, _), at in began.items())]
    changes = sum(left != right for left, right in pairwise(order))
    fewer = min(order.count("a"), order.count("b"))
    return changes >= max(2, fewer - 1)


def _middle(records: Sequence[Record]) -> datetime | None:
    """Return the median of the known start times, in UTC; None if no start is known."""
    times = [at for each in records if (at := seconds_of(each.started)) is not None]
    return datetime.fromtimestamp(statistics.median(times), UTC) if times else None


def seconds_of(text: str) -> float | None:
    """Return the seconds since 1970 of a time of a record, in UTC; None if it is not a time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
