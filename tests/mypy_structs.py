"""A plugin of mypy: functions of `dataclasses` are not called on a Struct.

mypy takes a Struct for a dataclass, and `dataclasses.replace` raises TypeError for one.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.plugin import FunctionContext, Plugin
from mypy.types import CallableType, Instance, Type, TypeType, UnionType, get_proper_type

INSTEAD = {
    "dataclasses.replace": "msgspec.structs.replace",
    "dataclasses.asdict": "fleet.model.plain.to_plain",
    "dataclasses.astuple": "msgspec.structs.astuple",
    "dataclasses.fields": "msgspec.structs.fields",
    "builtins.vars": "msgspec.structs.asdict",
}


class StructPlugin(Plugin):
    """Reports each call with what to call instead."""

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        """Return the check of a function of `dataclasses`."""
        instead = INSTEAD.get(fullname)

        def check(context: FunctionContext) -> Type:
            if any(_is_struct(kind) for kinds in context.arg_types[:1] for kind in kinds):
                context.api.fail(f"{fullname} on a msgspec.Struct: use {instead}", context.context)
            return context.default_return_type

        return check if instead else None


def _is_struct(kind: Type) -> bool:
    kind = get_proper_type(kind)
    if isinstance(kind, UnionType):
        return any(map(_is_struct, kind.items))
    if isinstance(kind, CallableType) and kind.is_type_obj():  # the class itself
        return _is_struct(kind.ret_type)
    if isinstance(kind, TypeType):
        return _is_struct(kind.item)
    return isinstance(kind, Instance) and kind.type.has_base("msgspec.Struct")


def plugin(version: str) -> type[Plugin]:
    """Return the plugin: mypy calls this."""
    return StructPlugin
