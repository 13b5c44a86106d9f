"""One measured run: numbers with units, conditions, provenance, and whether it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from fleet.model.conditions import Conditions

SCHEMA = 2


@dataclass(frozen=True)
class Measure:
    """A number with the unit that its source gave it; "" for a count."""

    value: float
    unit: str = ""


@dataclass(frozen=True)
class Op:
    """What one operation of a graph took. `unit`: cycles, us, or what the source says.

    `kind` is its type (Conv2d), `shape` that of its output (1x16x64), `ran_on` where it ran:
    npu, cpu, gpu; each "" where the source does not tell.
    """

    name: str
    value: float
    unit: str
    kind: str = ""
    shape: str = ""
    ran_on: str = ""
    graph: str = ""


@dataclass(frozen=True)
class Metrics:
    """Times in milliseconds, rates in tokens per second; None where the source has none.

    `others` are numbers that only some runners have, by name. `source` are the numbers as the
    source wrote them, under its own names and in its own units.
    """

    init_ms: float | None = None
    prompt_tokens: int | None = None
    prompt_tps: float | None = None
    ttft_ms: float | None = None
    generated_tokens: int | None = None
    decode_tps: float | None = None
    decode_ms: float | None = None
    others: Mapping[str, Measure] = field(default_factory=dict)
    source: Mapping[str, Measure] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Mapping[str, Measure]) -> Self:
        """Metrics by name; a name that is a field goes there, all others into `others`."""
        own = set(cls.__dataclass_fields__) - {"others", "source"}
        known: dict[str, Any] = {
            name: int(one.value) if name.endswith("_tokens") else one.value
            for name, one in found.items()
            if name in own
        }
        return cls(**known, others={name: one for name, one in found.items() if name not in own})


@dataclass(frozen=True)
class Record:
    """One run on one device.

    `problems` says why a run does not count: cut (timeout, token-limit, no-query-event,
    context-full), cpu-fallback, failed, rebooted. `marks` are remarks on a run that counts:
    throttled. `finish` is eos, token-limit, or None when unknown. `emulated` runs are never an
    NPU's numbers. `files` maps release names to sha256. `tags` are words of the user.
    """

    run_id: str
    host: str
    name: str
    release: str
    runner: str
    repeat: int
    warmup: bool
    started: str
    seconds: float
    status: int
    metrics: Metrics
    finish: str | None
    problems: tuple[str, ...]
    emulated: bool
    argv: tuple[str, ...]
    env: Mapping[str, str]
    prompt_sha256: str
    files: Mapping[str, str]
    origin: Mapping[str, Any]
    facts: Mapping[str, Any]
    identity: str
    text: str = ""
    fleet: str = ""
    schema: int = SCHEMA
    artifacts: Mapping[str, str] = field(default_factory=dict)
    ops: tuple[Op, ...] = ()
    conditions: Conditions = field(default_factory=Conditions)
    marks: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    @property
    def counts(self) -> bool:
        """True for a whole run on the NPU that is no warm-up."""
        return not self.problems and not self.warmup

    def as_dict(self) -> dict[str, Any]:
        """Plain data for record.json."""
        return {**asdict(self), "counts": self.counts}
