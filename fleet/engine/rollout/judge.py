"""The verdict after a wave: numbers in, verdict out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from fleet.engine.pool import FINE
from fleet.engine.rollout.waves import Wave
from fleet.model.rollout import Amount, RolloutSpec

UNREACHABLE = "unreachable"
Word = Literal["go", "stop", "rollback"]


@dataclass(frozen=True)
class WaveVerdict:
    """The decision after a wave. `text` is the reason if the wave did not succeed, else ""."""

    word: Word
    text: str = ""


@dataclass
class Tally:
    """The outcomes of a wave's devices. Devices without an outcome are in none of the counts."""

    size: int
    fine: int = 0
    failed: int = 0
    unreachable: int = 0

    def add(self, outcome: str) -> None:
        """Count one outcome.

        Anything except fine and unreachable is a failure; "" is no outcome yet.
        """
        if outcome in FINE:
            self.fine += 1
        elif outcome == UNREACHABLE:
            self.unreachable += 1
        elif outcome:
            self.failed += 1

    @property
    def ended(self) -> bool:
        """True if every device has an outcome."""
        return self.fine + self.failed + self.unreachable == self.size


@dataclass(frozen=True)
class Limits:
    """The number of devices of a wave that may fail, and that may be unreachable."""

    failed: int
    unreachable: int
    PLAIN: ClassVar[str] = "may_fail=failed may_be_unreachable=unreachable"


def limits(wave: Wave, spec: RolloutSpec) -> Limits:
    """Return the limits: percentages of all devices of the wave, rounded down; 0 in the canary."""
    if wave.strict:
        return Limits(0, 0)
    size = len(wave.hosts)
    return Limits(spec.max_failed.of(size), spec.max_unreachable.of(size))


def tally(wave: Wave, outcomes: Mapping[str, str]) -> Tally:
    """Count the outcomes (host → outcome) of the hosts of a wave."""
    counts = Tally(len(wave.hosts))
    for name in wave.hosts:
        counts.add(outcomes.get(name, ""))
    return counts


def judge(wave: Wave, spec: RolloutSpec, counts: Tally) -> WaveVerdict:
    """Return whether the rollout continues after or within a wave.

    The first device above a limit exceeds it. A finished wave without any success always ends the
    rollout. `continue` ignores the two limits.
    """
    may = limits(wave, spec)
    words = [
        _over(counts.failed, may.failed, counts.size, "failed", spec.max_failed),
        _over(
            counts.unreachable,
            may.unreachable,
            counts.size,
            "were unreachable",
            spec.max_unreachable,
        ),
    ]
    text = "; ".join(word for word in words if word)
    nothing = counts.ended and counts.size > 0 and not counts.fine
    if nothing:
        text = _nothing(counts)
    if not text:
        return WaveVerdict("go")
    if spec.on_fail == "continue":
        return WaveVerdict("stop" if nothing else "go", text)
    return WaveVerdict("rollback" if spec.on_fail == "rollback" else "stop", text)


def _over(count: int, allowed: int, size: int, what: str, limit: Amount) -> str:
    """Return `2 of 10 devices failed; the limit is 1 (10%)`, or "" if the count is allowed."""
    if count <= allowed:
        return ""
    share = f" ({limit})" if limit.percent and allowed else ""
    return f"{count} of {size} devices {what}; the limit is {allowed}{share}"


def _nothing(counts: Tally) -> str:
    parts = [(counts.failed, "failed"), (counts.unreachable, "unreachable")]
    words = ", ".join(f"{count} {word}" for count, word in parts if count)
    return f"none of {counts.size} devices succeeded ({words})"
