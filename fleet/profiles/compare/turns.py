"""Were two sides measured in turns? And what is one value of them: a run, or a boot?

Days and boots move both sides alike only where the sides alternate. Measured one after the other
they are in the change, and no test can tell them from it: docs/compare.md.
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
    """Why two sides of one board allow no verdict: `boot` or `time`, and A's and B's words.

    None where they were measured in turns, or within FAR_HOURS in so many boots of their own that
    boots are the unit. One after the other in one boot, a board that warms or a clock that sticks
    is a change that no test can tell from B, so runs that are enough for a verdict need turns;
    fewer get none anyway. What is unknown is no reason.
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
    """True where the boot is the unit: all are known, and none has runs of both sides."""
    boots = [_boots(side) for side in (a, b)]
    return bool(all(boots)) and boots[0].isdisjoint(boots[1])


def _boots(records: Sequence[Record]) -> set[str]:
    """The boots of records; empty where one of them is not known."""
    found = {record.conditions.boot_id for record in records}
    return set() if "" in found else found


def _in_turns(a: Sequence[Record], b: Sequence[Record]) -> bool:
    """True where the sides change at least as often as the smaller one has runs, less one.

    Where the boot is the unit, boots are counted instead.
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
    """The middle of the known starts, UTC; None where there is none."""
    found = [at.timestamp() for record in records if (at := _time(record.started))]
    return datetime.fromtimestamp(statistics.median(found), UTC) if found else None


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
