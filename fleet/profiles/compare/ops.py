"""Operation by operation: new ones, lost ones, those that left the NPU, the biggest movers."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet.model.record import Op, Record

Key = tuple[str, str, str]
MOVERS = 10


@dataclass(frozen=True)
class OpChange:
    """One operation. `a`, `b`: medians over the runs, None where it is not; `unit` of both.

    `share`: how much of A's whole the change is (0.02: the whole takes two percent more by it).
    """

    name: str
    shape: str
    graph: str
    kind: str
    a: float | None
    b: float | None
    share: float
    ran_on_a: str
    ran_on_b: str


@dataclass(frozen=True)
class OpDiff:
    """What changed in the operations of one unit. Totals are sums of medians."""

    unit: str
    joined: int
    total_a: float
    total_b: float
    new: tuple[OpChange, ...]
    gone: tuple[OpChange, ...]
    left_npu: tuple[OpChange, ...]
    movers: tuple[OpChange, ...]


@dataclass
class _Seen:
    op: Op
    values: list[float]
    places: set[str]


def compare_ops(a: Sequence[Record], b: Sequence[Record]) -> list[OpDiff]:
    """The operations of records that count, joined by graph, name and shape; one list a unit.

    Operations without a shape on one side are joined by graph and name. Cycles are never held
    against microseconds.
    """
    left, right = _read(a), _read(b)
    return [_diff(unit, left[unit], right[unit]) for unit in sorted(left.keys() & right.keys())]


def lonely_units(a: Sequence[Record], b: Sequence[Record]) -> tuple[set[str], set[str]]:
    """Units in which only one side gives operations: they could not be compared."""
    left, right = set(_read(a)), set(_read(b))
    return left - right, right - left


def typical(records: Iterable[Record]) -> dict[str, list[tuple[str, str, float]]]:
    """Unit → (name, where it ran, median over the runs that count), the largest first.

    A name that stands for several operations (other graph, other shape) is told with them.
    """
    found: dict[str, list[tuple[str, str, float]]] = {}
    for unit, ops in _read(records).items():
        often = Counter(name for _, name, _ in ops)
        for (graph, name, shape), seen in ops.items():
            label = name if often[name] == 1 else " ".join(filter(None, (name, shape, graph)))
            where = "+".join(sorted(seen.places))
            found.setdefault(unit, []).append((label, where, statistics.median(seen.values)))
        found[unit].sort(key=lambda op: (-op[2], op[0]))
    return found


def _read(records: Iterable[Record]) -> dict[str, dict[Key, _Seen]]:
    units: dict[str, dict[Key, _Seen]] = {}
    for record in records:
        for key, op, value in _summed(record.ops if record.counts else ()):
            seen = units.setdefault(op.unit, {}).setdefault(key, _Seen(op, [], set()))
            seen.values.append(value)
            seen.places |= {op.ran_on} - {""}
    return units


def _summed(ops: Sequence[Op]) -> Iterable[tuple[Key, Op, float]]:
    """An operation that one record has several times (runs of a graph) counts once, as sum."""
    found: dict[tuple[str, Key], list[Op]] = {}
    for op in ops:
        found.setdefault((op.unit, (op.graph, op.name, op.shape)), []).append(op)
    for (_, key), alike in found.items():
        yield key, alike[0], sum(op.value for op in alike)


def _diff(unit: str, a: dict[Key, _Seen], b: dict[Key, _Seen]) -> OpDiff:
    pairs = _joined(a, b)
    total = sum(statistics.median(seen.values) for seen in a.values())
    changes = [_change(left, right, total) for left, right in pairs]
    both = [change for change in changes if change.a is not None and change.b is not None]
    by_share = sorted(changes, key=lambda change: (-abs(change.share), change.name))
    return OpDiff(
        unit,
        len(both),
        total,
        sum(statistics.median(seen.values) for seen in b.values()),
        tuple(change for change in by_share if change.a is None),
        tuple(change for change in by_share if change.b is None),
        tuple(change for change in by_share if _left(change)),
        tuple(change for change in by_share if change in both and change.share)[:MOVERS],
    )


def _left(change: OpChange) -> bool:
    """True where B ran it in a place that is no NPU and that A had not, on a board at least."""
    before, after = set(change.ran_on_a.split("+")), set(change.ran_on_b.split("+")) - {""}
    return "npu" in before and bool(after) and ("npu" not in after or bool(after - before))


def _joined(a: dict[Key, _Seen], b: dict[Key, _Seen]) -> list[tuple[_Seen | None, _Seen | None]]:
    pairs: list[tuple[_Seen | None, _Seen | None]] = []
    left, right = dict(a), dict(b)
    both = left.keys() & right.keys()
    pairs += [(left.pop(key), right.pop(key)) for key in a if key in both]
    bare = _by_name(right)
    for key in list(left):
        others = bare.get(key[:2], [])
        if len(others) == 1 and not (key[2] and others[0][2]) and others[0] in right:
            pairs.append((left.pop(key), right.pop(others[0])))
    pairs += [(seen, None) for seen in left.values()]
    pairs += [(None, seen) for seen in right.values()]
    return pairs


def _by_name(ops: dict[Key, _Seen]) -> dict[tuple[str, str], list[Key]]:
    found: dict[tuple[str, str], list[Key]] = {}
    for key in ops:
        found.setdefault((key[0], key[1]), []).append(key)
    return found


def _change(left: _Seen | None, right: _Seen | None, total: float) -> OpChange:
    seen = left or right
    if seen is None:
        raise ValueError("an operation of neither side")
    a = statistics.median(left.values) if left else None
    b = statistics.median(right.values) if right else None
    share = ((b or 0.0) - (a or 0.0)) / total if total else 0.0
    places = ["+".join(sorted(side.places)) if side else "" for side in (left, right)]
    op = seen.op
    return OpChange(op.name, op.shape, op.graph, op.kind, a, b, share, places[0], places[1])
