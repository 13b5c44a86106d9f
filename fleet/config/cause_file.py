"""A cause file of the doctor: YAML -> Cause, every mistake with its file, line and cure."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from fleet.config.fields import Strict, wrong
from fleet.config.problems import Problems
from fleet.config.reports import validated
from fleet.config.yamlpos import read
from fleet.data import frozen
from fleet.model.cause import LAYERS, PLATFORMS, Cause, Example, Fix, Predicate, Signature, Twin
from fleet.model.errors import InputError

# 70 files are read for each diagnosis; libyaml takes 0.05 s for them, Python 0.6 s.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _word(value: object) -> object:
    """YAML 1.1 reads `yes` as a truth value and 14001 as a number; both are words here."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, int | float) else value


def _words(value: object) -> object:
    return [_word(word) for word in value] if isinstance(value, list) else [_word(value)]


def _among(value: str, known: tuple[str, ...], what: str) -> str:
    if value not in known:
        raise wrong(f"'{value}' is not a valid {what}", f"use one of: {', '.join(known)}")
    return value


Word = Annotated[str, BeforeValidator(_word)]
Words = Annotated[list[str], BeforeValidator(_words)]
Context = Literal["npu", "chip", "shell", "phone", "link", "runtime"]
Layer = Annotated[str, AfterValidator(lambda value: _among(value, LAYERS, "layer"))]
Platform = Annotated[str, AfterValidator(lambda value: _among(value, PLATFORMS, "platform"))]
Weight = Annotated[float, Field(gt=0, lt=1)]


class _Signature(Strict):
    match: str
    weight: Weight
    summary: bool = False
    unless: str = ""
    needs: str = ""


class _Predicate(Strict):
    fact: str
    values: Words = Field(alias="is")
    weight: Weight


class _Twin(Strict):
    cause: str
    command: str
    reading: str


class _Condition(Strict):
    fact: str
    values: Words = Field(alias="is")


class _Fix(Strict):
    platform: Literal["linux", "android", "windows", "any"]
    title: str
    command: str = ""
    where: Literal["device", "host"] = "device"
    needs_root: bool = False
    reversible: bool = True
    reboot: bool = False
    apply: Literal["provision", "redeploy", "rollback", ""] = ""
    unless: _Condition | None = None
    when: _Condition | None = None
    changes: Annotated[str, Field(min_length=1)]
    undo: str = ""

    @model_validator(mode="after")
    def _has_a_way_back(self) -> Self:
        kept = self.changes.startswith("nothing") or not self.reversible
        if not kept and not self.undo:
            raise wrong(
                "this fix changes the device, so it must say how to undo the change",
                "add `undo:` with a command, or `reversible: false`",
            )
        return self


class _Example(Strict):
    log: str = ""
    facts: dict[str, Word] | None = None
    top: int = Field(default=1, ge=1)
    source: str = ""


class _Cause(Strict):
    id: str
    title: str
    layer: Layer
    severity: Literal["error", "advice"] = "error"
    platforms: list[Platform] = Field(default_factory=lambda: list(PLATFORMS))
    codes: Words = Field(default_factory=list)
    context: list[Context] = Field(default_factory=list)
    explanation: str
    signatures: list[_Signature] = Field(default_factory=list)
    excludes: list[str] = Field(default_factory=list)
    against: list[str] = Field(default_factory=list)
    refuted: list[_Condition] = Field(default_factory=list)
    twins: list[_Twin] = Field(default_factory=list)
    probe: list[_Predicate] = Field(default_factory=list)
    fix: list[_Fix] = Field(default_factory=list)
    verify: str
    sources: list[str] = Field(default_factory=list)
    examples: list[_Example] = Field(min_length=1)


def cause_schema() -> dict[str, Any]:
    """The JSON Schema of a cause file."""
    return _Cause.model_json_schema(by_alias=True)


def load_causes(paths: Iterable[Path]) -> tuple[Cause, ...]:
    """The causes in these files, by id. InputError for a mistake, and for a name that is no id."""
    found = {}
    for path in paths:
        cause = load_cause(path)
        if cause.id != path.stem:
            raise InputError(
                f"{path}: the id '{cause.id}' and the file name '{path.stem}' differ",
                hint=f"write `id: {path.stem}`, or rename the file to {cause.id}.yaml",
            )
        found[cause.id] = cause
    for cause in found.values():
        for other in (*cause.excludes, *(twin.cause for twin in cause.twins)):
            if other not in found:
                raise InputError(
                    f"cause {cause.id} refers to the cause '{other}', which does not exist",
                    hint=f"correct the name, or add {other}.yaml",
                )
    return tuple(found[key] for key in sorted(found))


def load_cause(path: Path) -> Cause:
    """One cause file."""
    try:
        raw = yaml.load(path.read_text("utf-8"), Loader=_LOADER)  # noqa: S506 - a safe loader
        parsed = _Cause.model_validate(raw)
    except (OSError, ValueError, yaml.YAMLError):
        # The slow way, which knows the lines of what is wrong.
        parsed = validated(_Cause, read(path, InputError), Problems(InputError))
    return _cause(parsed)


def _cause(raw: _Cause) -> Cause:
    made: dict[str, Any] = {
        "refuted": tuple((fact.fact, tuple(fact.values)) for fact in raw.refuted),
        "signatures": tuple(Signature(**row.model_dump()) for row in raw.signatures),
        "probe": tuple(Predicate(row.fact, tuple(row.values), row.weight) for row in raw.probe),
        "twins": tuple(Twin(**twin.model_dump()) for twin in raw.twins),
        "fix": tuple(_fix(fix) for fix in raw.fix),
        "examples": tuple(Example(**example.model_dump()) for example in raw.examples),
    }
    return Cause(**frozen(dict(raw)) | made)


def _fix(raw: _Fix) -> Fix:
    plain = raw.model_dump(exclude={"unless", "when"})
    return Fix(**plain, unless=_condition(raw.unless), when=_condition(raw.when))


def _condition(raw: _Condition | None) -> tuple[str, tuple[str, ...]] | None:
    return (raw.fact, tuple(raw.values)) if raw is not None else None
