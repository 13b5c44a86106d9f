"""Types of single values, as pydantic takes them: check, message, cure, schema."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple
from typing import Annotated, TypeVar

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

from fleet.config import values
from fleet.config.values import Pattern
from fleet.model.errors import InputError


class Strict(BaseModel):
    """A mapping that knows all its keys, and types that are not bent to fit."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True
    )


def wrong(message: str, hint: str) -> PydanticCustomError:
    """An error for a validator to raise: `message` must not hold the value of a secret."""
    return PydanticCustomError("fleet", "{text}", {"text": message, "hint": hint})


_T = TypeVar("_T")
_V = TypeVar("_V")


def told(check: Callable[[_V], _T]) -> Callable[[_V], _T]:
    """A check that raises InputError, for pydantic: that error has a place then."""

    def checked(value: _V) -> _T:
        try:
            return check(value)
        except InputError as error:
            raise wrong(error.message, error.hint) from error

    return checked


no_template = told(values.no_template)
seconds_of = told(values.seconds_of)


class Matches(Pattern):
    """A Pattern of a text type."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(told(self.check), handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), **self.schema}


Duration = Annotated[float, BeforeValidator(seconds_of), WithJsonSchema(values.DURATION_SCHEMA)]
FilePath = Annotated[str, Matches(*astuple(values.FILE_PATH))]
_OPENS = r"https://\S+|docs/sources/\S+ \d+"
Source = Annotated[
    str,
    Matches(_OPENS, "source", "write only an https:// address, or a note like `lab: ...`"),
]
