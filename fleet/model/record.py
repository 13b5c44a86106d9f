"""One measured run: numbers with units, conditions, provenance, and whether it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from fleet.model.conditions import Conditions
from fleet.model.errors import InputError
from fleet.model.plain import Plain
from fleet.model.suite import SuiteResult

SCHEMA = 2


@dataclass(frozen=True)
class Measure:
    """A number with the unit that its source gave it; "" for a count."""

    value: float
    unit: str = ""

    @classmethod
    def of(cls, data: Plain) -> Self:
        """A measure from plain data. Raises InputError."""
        value = data.number("value")
        if value is None:
            raise data.wrong("value", "a number")
        return cls(value, data.text("unit"))


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

    @classmethod
    def of(cls, data: Plain) -> Self:
        """An operation from plain data. Raises InputError."""
        value = data.number("value")
        if value is None:
            raise data.wrong("value", "a number")
        return cls(value=value, **data.fields_of(cls))


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
            name: int(measure.value) if name.endswith("_tokens") else measure.value
            for name, measure in found.items()
            if name in own
        }
        return cls(
            **known, others={name: measure for name, measure in found.items() if name not in own}
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            **vars(self),
            "others": {name: dict(vars(measure)) for name, measure in self.others.items()},
            "source": {name: dict(vars(measure)) for name, measure in self.source.items()},
        }

    @classmethod
    def read(cls, data: Plain) -> Self:
        """Metrics from plain data. Raises InputError."""
        return cls(
            **data.fields_of(cls),
            others={name: Measure.of(measure) for name, measure in data.members("others")},
            source={name: Measure.of(measure) for name, measure in data.members("source")},
        )


@dataclass(frozen=True)
class Record:
    """One run on one device.

    `problems` says why a run does not count: cut (timeout, no-query-event, context-full; the token
    limit where the playbook asks for it), cpu-fallback, failed, rebooted. `marks` are remarks on a
    run that counts: cut (by the token limit), throttled, profiled. `finish` is eos, token-limit,
    or None when unknown. `emulated` runs are never an NPU's numbers; None, `seconds` and `status`
    too, where an imported profile does not tell.
    `files` maps release names to sha256. `tags` are words of the user. `suite`: this was no timed
    run but the questions of a suite, with their answers.
    """

    run_id: str
    host: str
    name: str = ""
    release: str = ""
    runner: str = ""
    repeat: int = 0
    warmup: bool = False
    started: str = ""
    seconds: float | None = None
    status: int | None = None
    metrics: Metrics = Metrics()
    finish: str | None = None
    problems: tuple[str, ...] = ()
    emulated: bool | None = None
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    prompt_sha256: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    identity: str = ""
    text: str = ""
    fleet: str = ""
    schema: int = SCHEMA
    artifacts: Mapping[str, str] = field(default_factory=dict)
    ops: tuple[Op, ...] = ()
    conditions: Conditions = field(default_factory=Conditions)
    marks: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    suite: SuiteResult | None = None

    @property
    def counts(self) -> bool:
        """True for a whole run on the NPU that is no warm-up."""
        return not self.problems and not self.warmup

    def as_dict(self) -> dict[str, Any]:
        """Plain data for record.json; what it holds is shared, not copied."""
        around = self.conditions
        return {
            **vars(self),
            "metrics": self.metrics.as_dict(),
            "ops": tuple(dict(vars(op)) for op in self.ops),
            "conditions": dict(_EMPTY) if around == _NOTHING else asdict(around),
            "suite": self.suite.as_dict() if self.suite else None,
            "counts": self.counts,
        }

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """A record from plain data of schema 1 or 2; it comes out as one of ours.

        Keys that are not known are left out, at every level: a later version of this schema
        may add some. Raises InputError that names the key, and for a newer schema, where a
        known key may mean something else.
        """
        found = Plain(data)
        _check_schema(found)
        for key in ("run_id", "host", "metrics"):
            if key not in found.data:
                raise InputError(
                    f"the record has no `{key}`",
                    hint="fleet config schema record (prints the format)",
                )
        inner, around = found.inner("metrics"), found.inner("conditions")
        return cls(
            **found.fields_of(cls),
            repeat=found.count("repeat") or 0,
            warmup=found.flag("warmup") or False,
            metrics=Metrics.read(inner) if inner else Metrics(),
            finish=found.text("finish") or None,
            ops=tuple(Op.of(op) for op in found.each("ops")),
            conditions=Conditions.of(around) if around else Conditions(),
            suite=SuiteResult.of(answers) if (answers := found.inner("suite")) else None,
        )


_NOTHING = Conditions()
_EMPTY = asdict(_NOTHING)


def _check_schema(data: Plain) -> None:
    """The first records said no schema: those are of schema 1."""
    schema = data.count("schema")
    if schema is not None and schema < 1:
        raise data.wrong("schema", "a version from 1 on")
    if schema is not None and schema > SCHEMA:
        raise InputError(
            f"the record has schema version {schema}, but this version of fleet reads only "
            f"versions 1 to {SCHEMA}",
            hint="pip install --upgrade npu-fleet",
        )
