"""The comparison of operations: new, missing, moved off the NPU, and the biggest changes."""

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
    """The change of one operation.

    `a` and `b` are medians over the runs, in the unit of the diff; None if the side does not have
    the operation. `share` is the change as a share of A's total: 0.02 means that the total grows by
    two percent.
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
    """The changes of the operations of one unit. Totals are sums of medians."""

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
    """Return the differences of the operations of records that count, one for each unit.

    Operations are joined by graph, name and shape; by graph and name if one side has no shape.
    Cycles are never compared with microseconds.
    """
    left, right = _read(a), _read(b)
    return [_diff(unit, left[unit], right[unit]) for unit in sorted(left.keys() & right.keys())]


def lonely_units(a: Sequence[Record], b: Sequence[Record]) -> tuple[set[str], set[str]]:
    """Return the units that only A has, and those that only B has; they cannot be compared."""
    left, right = set(_read(a)), set(_read(b))
    return left - right, right - left


def typical(records: Iterable[Record]) -> dict[str, list[tuple[str, str, float]]]:
    """Return, for each unit, (name, place of execution, median) of each operation, largest first.

    The median is over the runs that count. The label of a name that several operations share also
    has the shape and the graph.
    """
    units: dict[str, list[tuple[str, str, float]]] = {}
    for unit, ops in _read(records).items():
        often = Counter(name for _, name, _ in ops)
        for (graph, name, shape), sample in ops.items():
            label = name if often[name] == 1 else " ".join(filter(None, (name, shape, graph)))
            where = "+".join(sorted(sample.places))
            units.setdefault(unit, []).append((label, where, statistics.median(sample.values)))
        units[unit].sort(key=lambda op: (-op[2], op[0]))
    return units


def _read(records: Iterable[Record]) -> dict[str, dict[Key, _Seen]]:
    units: dict[str, dict[Key, _Seen]] = {}
    for record in records:
        for key, op, value in _summed(record.ops if record.counts else ()):
            sample = units.setdefault(op.unit, {}).setdefault(key, _Seen(op, [], set()))
            sample.values.append(value)
            sample.places |= {op.ran_on} - {""}
    return units


def _summed(ops: Sequence[Op]) -> Iterable[tuple[Key, Op, float]]:
    """Yield each operation of a record once, with the sum over its repeats in the record."""
    groups: dict[tuple[str, Key], list[Op]] = {}
    for op in ops:
        groups.setdefault((op.unit, (op.graph, op.name, op.shape)), []).append(op)
    for (_, key), alike in groups.items():
        yield key, alike[0], sum(op.value for op in alike)


def _diff(unit: str, a: dict[Key, _Seen], b: dict[Key, _Seen]) -> OpDiff:
    pairs = _joined(a, b)
    total = sum(statistics.median(sample.values) for sample in a.values())
    changes = [_change(left, right, total) for left, right in pairs]
    both = [change for change in changes if change.a is not None and change.b is not None]
    by_share = sorted(changes, key=lambda change: (-abs(change.share), change.name))
    return OpDiff(
        unit,
        len(both),
        total,
        sum(statistics.median(sample.values) for sample in b.values()),
        tuple(change for change in by_share if change.a is None),
        tuple(change for change in by_share if change.b is None),
        tuple(change for change in by_share if _left(change)),
        tuple(change for change in by_share if change in both and change.share)[:MOVERS],
    )


def _left(change: OpChange) -> bool:
    """Return True if B ran the operation, on some board, in a place other than the NPU that A did
    not use.
    """
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
    pairs += [(sample, None) for sample in left.values()]
    pairs += [(None, sample) for sample in right.values()]
    return pairs


def _by_name(ops: dict[Key, _Seen]) -> dict[tuple[str, str], list[Key]]:
    keys: dict[tuple[str, str], list[Key]] = {}
    for key in ops:
        keys.setdefault((key[0], key[1]), []).append(key)
    return keys


def _change(left: _Seen | None, right: _Seen | None, total: float) -> OpChange:
    sample = left or right
    if sample is None:
        raise ValueError("an operation of neither side")
    a = statistics.median(left.values) if left else None
    b = statistics.median(right.values) if right else None
    share = ((b or 0.0) - (a or 0.0)) / total if total else 0.0
    places = ["+".join(sorted(side.places)) if side else "" for side in (left, right)]
    op = sample.op
    return OpChange(op.name, op.shape, op.graph, op.kind, a, b, share, places[0], places[1])
