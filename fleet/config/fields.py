"""Types of single values, shared by inventory and playbook: check, message, cure, schema."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from fleet.config.hostkeys import FILE_PATH, LONGEST_SECONDS
from fleet.config.yamlpos import describe
from fleet.model.deadline import parse_duration
from fleet.model.errors import InputError


class Strict(BaseModel):
    """A mapping that knows all its keys, and types that are not bent to fit."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True
    )


def wrong(message: str, hint: str) -> PydanticCustomError:
    """An error for a validator to raise: `message` must not hold the value of a secret."""
    return PydanticCustomError("fleet", "{text}", {"text": message, "hint": hint})


def no_template(value: str) -> str:
    """Refuse Jinja templates."""
    if "{{" in value or "{%" in value:
        raise wrong(
            "templates ({{ ... }}) are not evaluated", "write the value itself, without a template"
        )
    return value


@dataclass(frozen=True)
class Matches:
    """Says of a text type that the whole text matches `pattern`; `shown` False for secrets."""

    pattern: str
    what: str
    hint: str
    shown: bool = True

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), "pattern": f"^(?:{self.pattern})$"}

    def check(self, value: str) -> str:
        """The value, or the error that says what it is not."""
        no_template(value)
        if not re.fullmatch(self.pattern, value):
            raise wrong(
                f"'{value}' is no {self.what}" if self.shown else f"this is no {self.what}",
                self.hint,
            )
        return value


def seconds_of(value: object) -> float:
    """Seconds of a duration as people write it, for validators."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise wrong(
            f"a duration is needed here, not {describe(value)}", "write it like 90s, 5m or 1h"
        )
    try:
        seconds = parse_duration(value)
    except InputError as error:
        raise wrong(error.message, error.hint or "write it like 90s, 5m or 1h") from error
    if not 0 < seconds <= LONGEST_SECONDS:
        raise wrong("a duration must be between 0 and 7 days", "write it like 90s, 5m or 1h")
    return seconds


Duration = Annotated[
    float,
    BeforeValidator(seconds_of),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_SECONDS},
                {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(ms|s|m|h)?\s*$"},
            ]
        }
    ),
]

FilePath = Annotated[str, Matches(FILE_PATH, "path", "write a path; ~ and relative paths are fine")]

FilePaths = Annotated[
    list[FilePath],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
