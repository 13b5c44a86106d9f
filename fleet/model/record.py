"""A measured run: numbers with units, conditions, provenance, and whether it counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from msgspec import Meta, Struct, field

from fleet.model.conditions import Conditions
from fleet.model.errors import InputError
from fleet.model.plain import Number, read_plain
from fleet.model.suite import SuiteResult

SCHEMA = 2
_CURE = "fleet config schema record (prints the format)"


class Measure(Struct, frozen=True):
    """A number with the unit from its source, "" for a count."""

    value: Number
    unit: str = ""


class Op(Struct, frozen=True):
    """The measurement of one operation of a graph. `unit` is cycles, us, or the word of the source.

    `kind` is its type (Conv2d), `shape` is that of its output (1x16x64), `ran_on` is npu, cpu or
    gpu; each is "" if the source does not contain it.
    """

    name: str
    value: Number
    unit: str = ""
    kind: str = ""
    shape: str = ""
    ran_on: str = ""
    graph: str = ""


class Metrics(Struct, frozen=True):
    """The metrics of a run: times in milliseconds, rates in tokens per second, None if missing.

    `others` are numbers that only some runners have, by name. `source` are the numbers as the
    source wrote them, with its own names and units.
    """

    init_ms: Number | None = None
    prompt_tokens: int | None = None
    prompt_tps: Number | None = None
    ttft_ms: Number | None = None
    generated_tokens: int | None = None
    decode_tps: Number | None = None
    decode_ms: Number | None = None
    others: Annotated[
        Mapping[str, Measure],
        Meta(description="Numbers that only some runners have, normalised, by name."),
    ] = field(default_factory=dict)
    source: Annotated[
        Mapping[str, Measure],
        Meta(description="The numbers as the source wrote them, under its names, in its units."),
    ] = field(default_factory=dict)

    @classmethod
    def of(cls, measures: Mapping[str, Measure]) -> Self:
        """Return metrics from numbers by name. A name that is not a field goes into `others`."""
        own = set(cls.__struct_fields__) - {"others", "source"}
        known: dict[str, Any] = {
            name: int(measure.value) if name.endswith("_tokens") else measure.value
            for name, measure in measures.items()
            if name in own
        }
        return cls(
            **known, others={name: measure for name, measure in measures.items() if name not in own}
        )


class Record(Struct, frozen=True, kw_only=True):
    """A run on one device.

    `problems` says why a run does not count: cut (timeout, no-query-event, context-full; the token
    limit if the playbook says so), cpu-fallback, failed, rebooted. `marks` are remarks on a run
    that counts: cut (by the token limit), throttled, profiled. `finish` is eos, token-limit, or
    None if unknown. Numbers of `emulated` runs are never those of an NPU. `emulated`, `seconds` and
    `status` are None if an imported profile does not contain them.

    `files` maps release names to sha256. `tags` are words of the user. `suite` means that this was
    not a timed run but the questions of a suite, with their answers.
    """

    run_id: Annotated[str, Meta(description="Id of the run; records of one run have the same.")]
    host: Annotated[
        str, Meta(description="Device, by its name in the inventory; empty where it is not known.")
    ]
    name: Annotated[
        str, Meta(description="Name of the playbook, which is that of the release.")
    ] = ""
    release: Annotated[
        str, Meta(description="Id of the release: a hash over its files and settings.")
    ] = ""
    runner: Annotated[
        str,
        Meta(description="genie, qnn-net-run, mllm, executorch, llama.cpp, exec, or another one."),
    ] = ""
    repeat: Annotated[int, Meta(description="Number of the repeat, from 0.")] = 0
    warmup: Annotated[bool, Meta(description="True for a warm-up, which never counts.")] = False
    started: Annotated[
        str, Meta(description="UTC, as 2026-11-20T22:45:01Z; empty where it is not known.")
    ] = ""
    seconds: Annotated[
        Number | None,
        Meta(description="Time of the whole run in seconds by the clock of the workstation."),
    ] = None
    status: Annotated[int | None, Meta(description="Exit status of the runner.")] = None
    metrics: Annotated[Metrics, Meta(description="What was measured.")]
    finish: Annotated[
        str | None, Meta(description="eos, token-limit, or null where it is not known.")
    ] = None
    problems: Annotated[
        tuple[str, ...], Meta(description="Why the run does not count; empty where it does.")
    ] = ()
    emulated: Annotated[
        bool | None,
        Meta(description="True for no NPU: its numbers are no speed. Null where nobody said it."),
    ] = None
    argv: Annotated[tuple[str, ...], Meta(description="What was started on the device.")] = ()
    env: Annotated[
        Mapping[str, str], Meta(description="Environment of the runner on the device.")
    ] = field(default_factory=dict)
    prompt_sha256: Annotated[str, Meta(description="sha256 of the prompt.")] = ""
    files: Annotated[
        Mapping[str, str], Meta(description="Files of the release: name to sha256.")
    ] = field(default_factory=dict)
    origin: Annotated[
        Mapping[str, Any],
        Meta(
            description="Where it comes from: runtime, build_id, target, bundle; imported, format."
        ),
    ] = field(default_factory=dict)
    facts: Annotated[
        Mapping[str, Any], Meta(description="Facts of the device as of fleet facts --json.")
    ] = field(default_factory=dict)
    identity: Annotated[
        str, Meta(description="Host key or serial number that the device was known by.")
    ] = ""
    text: Annotated[str, Meta(description="What the model said.")] = ""
    fleet: Annotated[str, Meta(description="Version of fleet that measured.")] = ""
    schema: Annotated[
        int, Meta(description="Version of this schema; without it, 1.", ge=1, le=SCHEMA)
    ] = SCHEMA
    artifacts: Annotated[
        Mapping[str, str],
        Meta(description="Files that were kept: name to path on the workstation."),
    ] = field(default_factory=dict)
    ops: Annotated[
        tuple[Op, ...], Meta(description="What single operations took (since schema 2).")
    ] = ()
    conditions: Annotated[
        Conditions, Meta(description="Heat, clocks, power, load around the run (since schema 2).")
    ] = field(default_factory=Conditions)
    marks: Annotated[
        tuple[str, ...],
        Meta(
            description="Remarks on a run that counts: cut, throttled, profiled (since schema 2)."
        ),
    ] = ()
    tags: Annotated[tuple[str, ...], Meta(description="Words of the user (since schema 2).")] = ()
    suite: Annotated[
        SuiteResult | None,
        Meta(description="Answers to a suite of prompts, instead of times; null for a timed run."),
    ] = None
    PLAIN: ClassVar[str] = "* counts"  # for readers that do not compute it

    @property
    def counts(self) -> bool:
        """True for a complete run on the NPU that is not a warm-up."""
        return not self.problems and not self.warmup

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Return a record from plain data of schema 1 or 2, converted to the current schema.

        Raises InputError that names the key. Raises it for a newer schema too, because a known key
        may have another meaning there.
        """
        schema = read_plain(_Head, data, "record", _CURE).schema
        if schema > SCHEMA:
            raise InputError(
                f"the record has schema version {schema}, but this version of fleet reads only "
                f"versions 1 to {SCHEMA}",
                hint="pip install --upgrade npu-fleet",
            )
        known = data if isinstance(data, dict) else {}
        finish = known.get("finish") or None
        return read_plain(cls, {**known, "finish": finish, "schema": SCHEMA}, "record", _CURE)


class _Head(Struct, frozen=True):
    """The schema of a record. The first records had no schema key: they have schema 1."""

    schema: Annotated[int, Meta(ge=1)] = 1
