"""The JSON Schema of a Struct that people write, made from the declaration that `shape` reads."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import msgspec

from fleet.config.shape import branches, is_body, keys_of, unwrapped
from fleet.config.values import Pattern, Range, Schema

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
_LIMITS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
}
_LENGTHS = {str: "minLength", list: "minItems", tuple: "minItems"}


def struct_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of a Struct, with the schemas of its parts below `$defs`."""
    parts: dict[str, Any] = {}
    return {**_body(kind, parts), "$defs": parts}


def _body(kind: type[msgspec.Struct], parts: dict[str, Any]) -> dict[str, Any]:
    keys = keys_of(kind)
    needed = [name for name, key in keys.items() if key.needed]
    properties = {}
    for name, key in keys.items():
        properties[name] = value_schema(key.type, parts)
        if key.description:
            properties[name]["description"] = key.description
        default = list(key.default) if isinstance(key.default, tuple) else key.default
        if not key.needed and isinstance(default, str | int | float | bool | list | None):
            properties[name]["default"] = default
    return {
        "type": "object",
        "description": kind.__doc__ or "",
        "additionalProperties": False,
        "properties": properties,
        **({"required": needed} if needed else {}),
    }


def value_schema(annotation: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value; the schemas of its Structs go to `parts`."""
    plain, marks = unwrapped(annotation)
    for mark in reversed(marks):
        if isinstance(mark, Schema):
            return dict(mark.body)
        if isinstance(mark, Pattern):
            return dict(mark.schema)
    limits = {
        word: getattr(mark, name)
        for mark in marks
        if isinstance(mark, msgspec.Meta | Range)
        for name, word in _LIMITS.items()
        if getattr(mark, name, None) is not None
    }
    least = next((mark.min_length for mark in marks if isinstance(mark, msgspec.Meta)), None)
    if least is not None:
        limits[_LENGTHS[get_origin(plain) or plain]] = least
    members = branches(plain)
    if len(members) > 1:
        return {"anyOf": [value_schema(member, parts) for member in members]}
    return {**_shape(plain, parts), **limits}


def _shape(plain: Any, parts: dict[str, Any]) -> dict[str, Any]:
    origin, inside = get_origin(plain), get_args(plain)
    if is_body(plain):
        name = plain.__name__.lstrip("_")
        if name not in parts:
            parts[name] = {}
            parts[name] = _body(plain, parts)
        return {"$ref": f"#/$defs/{name}"}
    if plain is type(None):
        return {"type": "null"}
    if origin is Literal:
        return {"enum": list(inside)}
    if origin is list or inside[1:] == (...,):
        return {"type": "array", "items": value_schema(inside[0], parts)}
    if origin is dict:
        return {"type": "object", "additionalProperties": value_schema(inside[1], parts)}
    return {"type": _PLAIN[plain]} if plain in _PLAIN else {}
