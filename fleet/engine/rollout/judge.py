"""When a wave ends the rollout: numbers in, a verdict out."""

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
    """What comes after a wave. `text` is the reason where it did not go well, else ""."""

    word: Word
    text: str = ""


@dataclass
class Tally:
    """How the devices of a wave stand; those without an outcome are in none of the three."""

    size: int
    fine: int = 0
    failed: int = 0
    unreachable: int = 0

    def add(self, outcome: str) -> None:
        """One more; what is neither fine nor unreachable has failed, "" is not there yet."""
        if outcome in FINE:
            self.fine += 1
        elif outcome == UNREACHABLE:
            self.unreachable += 1
        elif outcome:
            self.failed += 1

    @property
    def ended(self) -> bool:
        """True when every device has an outcome."""
        return self.fine + self.failed + self.unreachable == self.size


@dataclass(frozen=True)
class Limits:
    """How many devices of a wave may fail, and how many may be out of reach."""

    failed: int
    unreachable: int
    PLAIN: ClassVar[str] = "may_fail=failed may_be_unreachable=unreachable"


def limits(wave: Wave, spec: RolloutSpec) -> Limits:
    """A percentage is of all devices of the wave, cut to a whole number; 0 in the canary."""
    if wave.strict:
        return Limits(0, 0)
    size = len(wave.hosts)
    return Limits(spec.max_failed.of(size), spec.max_unreachable.of(size))


def tally(wave: Wave, outcomes: Mapping[str, str]) -> Tally:
    """Count the outcomes of a wave."""
    seen = Tally(len(wave.hosts))
    for name in wave.hosts:
        seen.add(outcomes.get(name, ""))
    return seen


def judge(wave: Wave, spec: RolloutSpec, seen: Tally) -> WaveVerdict:
    """Whether the rollout goes on after, or within, a wave.

    A limit is exceeded by the first device above it. A wave that ended and in which
    nothing came through ends the rollout always. `continue` ignores the two limits.
    """
    may = limits(wave, spec)
    words = [
        _over(seen.failed, may.failed, seen.size, "failed", spec.max_failed),
        _over(
            seen.unreachable, may.unreachable, seen.size, "were unreachable", spec.max_unreachable
        ),
    ]
    text = "; ".join(word for word in words if word)
    nothing = seen.ended and seen.size > 0 and not seen.fine
    if nothing:
        text = _nothing(seen)
    if not text:
        return WaveVerdict("go")
    if spec.on_fail == "continue":
        return WaveVerdict("stop" if nothing else "go", text)
    return WaveVerdict("rollback" if spec.on_fail == "rollback" else "stop", text)


def _over(count: int, allowed: int, size: int, what: str, limit: Amount) -> str:
    """`2 of 10 failed, allowed 1 of 10 (10%)`, or "" when that many are allowed."""
    if count <= allowed:
        return ""
    share = f" ({limit})" if limit.percent and allowed else ""
    return f"{count} of {size} devices {what}; the limit is {allowed}{share}"


def _nothing(seen: Tally) -> str:
    parts = [(seen.failed, "failed"), (seen.unreachable, "unreachable")]
    said = ", ".join(f"{count} {word}" for count, word in parts if count)
    return f"none of {seen.size} devices succeeded ({said})"
