"""What the doctor found: observations, ranked causes, a verdict. Plain data for every renderer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fleet.model.cause import Cause, Fix, Twin

# In this order of severity; the worst one is the verdict of a target. UNRECOGNISED is a log's:
# nothing that is known stands in it, neither of a failure nor of a success.
HEALTHY, ADVICE, PROBLEM, UNCHECKED = "healthy", "advice", "problem", "could-not-check"
UNRECOGNISED = "not-recognised"
OK, WARN, BAD, UNKNOWN = "ok", "warn", "bad", "unknown"


@dataclass(frozen=True)
class Evidence:
    """One thing that was seen: a line of a log (`line` from 1) or the output of a command."""

    source: str
    text: str
    line: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"source": self.source, "text": self.text} | (
            {"line": self.line} if self.line else {}
        )


@dataclass(frozen=True)
class Check:
    """One look at a layer. `status` is ok, warn, bad or unknown.

    `facts` are the words that the causes ask for (`node.cdsp: EACCES`); `text` is for people;
    `command` is what one would type to see it, `output` what was seen.
    """

    id: str
    layer: str
    status: str
    text: str
    facts: dict[str, str] = field(default_factory=dict)
    command: str = ""
    output: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Ranked:
    """A cause with the confidence (0 to 1) that it is the one, and why.

    `platform` and the `facts` of the device choose among the fixes; "" and none when a log does
    not show it. `summary` is true where only the last line of a chain was seen.
    """

    cause: Cause
    confidence: float
    evidence: tuple[Evidence, ...] = ()
    platform: str = ""
    summary: bool = False
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """The cures for the device that was seen."""
        return self.cause.fixes(self.platform, self.facts)

    @property
    def twins(self) -> tuple[Twin, ...]:
        """Causes that would show the same, with the command that tells."""
        return self.cause.twins

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON: what docs/doctor.md lists."""
        return {
            "id": self.cause.id,
            "title": self.cause.title,
            "confidence": round(self.confidence, 3),
            "layer": self.cause.layer,
            "severity": self.cause.severity,
            "evidence": [one.as_dict() for one in self.evidence],
            "explanation": self.cause.explanation,
            "fix": [_plain(fix) for fix in self.fixes],
            "verify": self.cause.verify,
            "tell_apart": [asdict(one) for one in self.twins],
            "sources": list(self.cause.sources),
        }


def _plain(fix: Fix) -> dict[str, Any]:
    """As JSON shows it: the condition was looked at already."""
    data = asdict(fix)
    del data["unless"]
    return data


@dataclass
class Diagnosis:
    """What is wrong with one target: a device or a file. `error` says why it was not checked."""

    target: str
    verdict: str
    causes: tuple[Ranked, ...] = ()
    checks: tuple[Check, ...] = ()
    emulated: bool = False
    notes: tuple[str, ...] = ()
    error: dict[str, object] | None = None
    seconds: float = 0.0
    round_trips: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "target": self.target,
            "verdict": self.verdict,
            "emulated": self.emulated,
            "causes": [one.as_dict() for one in self.causes],
            "checks": [one.as_dict() for one in self.checks],
            "notes": list(self.notes),
            "error": self.error,
            "seconds": round(self.seconds, 3),
            "round_trips": self.round_trips,
        }
