"""What typer 0.29 asks pydantic for, without the 0.1 s of processor time that importing it takes.

Only words that are plainly right are taken here, as typer would have taken them. All others,
among them all that is wrong, go to typer, whose message a person then reads.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

_NOTHING = object()


class _Values:
    """Stands where typer has what makes values of words."""

    def __init__(self, slow: Any) -> None:  # noqa: ANN401 - a method of typer
        self.slow = slow

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401
        """The value as typer gives it to the command."""
        kind, many = param.type_descriptor, param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        one, info = kind.annotation, kind.parameter_info
        if many and get_origin(one) is list:
            (one,) = get_args(one)
        elif many:
            one = _NOTHING
        if info.parser is None:
            found = [_made(each, one, info) for each in (value if many else [value])]
            if _NOTHING not in found:
                return found if many else found[0]
        return self.slow(param).coerce(value, param=param, ctx=ctx)


def _made(value: Any, one: Any, info: Any) -> Any:  # noqa: ANN401 - of any option
    """`value` as a value of the type `one`; _NOTHING where that takes a closer look."""
    if one is str:
        return value if type(value) is str else _NOTHING
    if one is int:
        digits = type(value) is str and value.isascii() and value.isdigit() and len(value) < 10
        number = int(value) if digits else value
        low, high = info.min, info.max
        fits = type(number) is int and not info.clamp
        fits = fits and (low is None or number >= low) and (high is None or number <= high)
        return number if fits else _NOTHING
    if one is Path:
        return _path(value, info)
    if get_origin(one) is Literal:
        return value if value in get_args(one) else _NOTHING
    return _NOTHING


def _path(value: Any, info: Any) -> Any:  # noqa: ANN401
    plain = info.file_okay and info.dir_okay and info.path_type is None
    if not plain or info.exists or info.writable or info.resolve_path or info.allow_dash:
        return _NOTHING
    if type(value) is not str and not isinstance(value, Path):
        return _NOTHING
    unreadable = info.readable and os.access(value, os.F_OK) and not os.access(value, os.R_OK)
    return _NOTHING if unreadable else Path(value)


def install() -> None:
    """Take that place; typers before 0.29 ask nobody."""
    if parameter := getattr(typer.core, "_TyperParameter", None):
        values = _Values(parameter.get_runtime_param)
        parameter.get_runtime_param = lambda _: values
