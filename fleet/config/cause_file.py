"""The reader of the doctor's cause files: YAML → Cause; each error has its file, line and cure."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from msgspec import Meta, convert, field

from fleet.config.problems import Problems
from fleet.config.shape import read_body, struct_schema
from fleet.config.values import Before, Schema
from fleet.config.yamlpos import plain, read
from fleet.model.cause import Cause, Condition, Example, Fix, Predicate
from fleet.model.errors import InputError

# Each diagnosis reads 70 files. libyaml takes 0.05 s for them, Python 0.6 s.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _word(value: object) -> object:
    """Return a YAML value as a word. YAML 1.1 reads `yes` as a truth value, 14001 as a number."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, int | float) else value


def _words(value: object) -> object:
    return [_word(word) for word in value] if isinstance(value, list) else [_word(value)]


_WORD = {"type": ["string", "number", "boolean"]}
Word = Annotated[str, Before(_word), Schema(_WORD)]
Words = Annotated[
    tuple[str, ...], Before(_words), Schema({"anyOf": [_WORD, {"type": "array", "items": _WORD}]})
]
Layer = Literal[
    "host", "link", "os", "user", "nodes", "library", "daemon", "dsp", "runtime", "bundle",
    "session",
]  # fmt: skip
Platform = Literal["linux", "android", "windows"]
Context = Literal["npu", "chip", "shell", "phone", "link", "runtime"]


class _Predicate(Predicate, frozen=True, kw_only=True):
    values: Words = field(name="is")


class _Condition(Condition, frozen=True, kw_only=True):
    values: Words = field(name="is")


class _Fix(Fix, frozen=True, kw_only=True):
    platform: Literal["linux", "android", "windows", "any"]
    where: Literal["device", "host"] = "device"
    apply: Literal["provision", "redeploy", "rollback", ""] = ""
    unless: _Condition | None = None
    when: _Condition | None = None
    changes: Annotated[str, Meta(min_length=1)]

    def __post_init__(self) -> None:
        kept = self.changes.startswith("nothing") or not self.reversible
        if not kept and not self.undo:
            raise InputError(
                "this fix changes the device, so it must say how to undo the change",
                hint="add `undo:` with a command, or `reversible: false`",
            )


class _Example(Example, frozen=True, kw_only=True):
    facts: dict[str, Word] | None = None


class _Cause(Cause, frozen=True, kw_only=True):
    layer: Layer
    severity: Literal["error", "advice"] = "error"
    platforms: tuple[Platform, ...] = ("linux", "android", "windows")
    codes: Words = ()
    context: tuple[Context, ...] = ()
    refuted: tuple[_Condition, ...] = ()
    probe: tuple[_Predicate, ...] = ()
    fix: tuple[_Fix, ...] = ()
    examples: Annotated[tuple[_Example, ...], Meta(min_length=1)]


def cause_schema() -> dict[str, Any]:
    """Return the JSON Schema of a file with causes for `fleet doctor`."""
    return struct_schema(_Cause)


def load_causes(paths: Iterable[Path]) -> tuple[Cause, ...]:
    """Return the causes in these files, sorted by id.

    Raises InputError for an error in a file, for a file whose name is not its id, and for a
    reference to a cause that does not exist.
    """
    causes = {}
    for path in paths:
        cause = load_cause(path)
        if cause.id != path.stem:
            raise InputError(
                f"{path}: the id '{cause.id}' and the file name '{path.stem}' differ",
                hint=f"write `id: {path.stem}`, or rename the file to {cause.id}.yaml",
            )
        causes[cause.id] = cause
    for cause in causes.values():
        for other in (*cause.excludes, *(twin.cause for twin in cause.twins)):
            if other not in causes:
                raise InputError(
                    f"cause {cause.id} refers to the cause '{other}', which does not exist",
                    hint=f"correct the name, or add {other}.yaml",
                )
    return tuple(causes[key] for key in sorted(causes))


def load_cause(path: Path) -> Cause:
    """Return the cause in a file. Raises InputError for the first error, with its position."""
    try:
        raw = yaml.load(path.read_text("utf-8"), Loader=_LOADER)  # noqa: S506 - a safe loader
        cause = read_body(_Cause, plain(raw, path), Problems(InputError))
    except (OSError, ValueError, InputError, yaml.YAMLError):
        # The slow reader knows the line of each error.
        cause = read_body(_Cause, read(path, InputError), Problems(InputError))
    return convert(cause, Cause, from_attributes=True)
