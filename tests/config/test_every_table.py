"""A wrong key, a wrong type and a missing key in every row of every data table.

The mistakes are made from the models: a table that is new is mistaken here by standing in TABLES.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from fleet.config.shape import Body, is_body, keys_of, unwrapped
from fleet.data import load
from fleet.model.errors import InputError, Position
from tests.config.tables import TABLES, check

Place = tuple[str | int, ...]
STRANGE = "zzzz"


def rows(model: type[Body], data: object, at: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Each mapping that a model describes, with the model; of equal rows of a list the first."""
    assert isinstance(data, dict)
    yield at, model
    for key, value in data.items():
        if key in keys_of(model):
            yield from nested(keys_of(model)[key].type, value, (*at, key))
        elif model.OTHERS is not None:
            yield from rows(model.OTHERS, value, (*at, key))


def nested(annotation: Any, data: object, at: Place) -> Iterator[tuple[Place, Any]]:
    annotation, _ = unwrapped(annotation)
    if is_body(annotation):
        if data is not None:
            yield from rows(annotation, data, at)
        return
    inner = get_args(annotation)
    items: Any = ()
    if isinstance(data, list) and inner:
        items, inner = enumerate(data), inner[:1]
    elif isinstance(data, dict) and inner:
        items, inner = data.items(), inner[1:]
    elif data is not None and inner:  # a union with None
        items, at = [(at[-1], data)], at[:-1]
    seen = set()
    for name, value in items:
        for part in inner:
            for place, model in nested(part, value, (*at, name)):
                if (model, place[len(at) + 1 :]) not in seen:
                    seen.add((model, place[len(at) + 1 :]))
                    yield place, model


def shortened(data: Any, needed: set[Place], at: Place = ()) -> Any:
    """The same without the rows that are like another one: each mistake is a file to read."""
    if isinstance(data, list) and data and isinstance(data[0], dict):
        kept = [i for i in range(len(data)) if (*at, i) in needed] or [0]
        return [shortened(data[i], needed, (*at, i)) for i in kept]
    if isinstance(data, dict):
        names = list(data)[: None if len(data) < 30 else 5]
        return {name: shortened(data[name], needed, (*at, name)) for name in names}
    return data


@cache
def table_of(name: str) -> tuple[dict[str, Any], list[tuple[Place, type[Body]]]]:
    """A table, and where it has mappings of which model."""
    data, model = load(name), TABLES[name]
    needed = {at[:end] for at, _ in rows(model, data) for end in range(1, len(at) + 1)}
    data = shortened(data, needed)
    return data, list(rows(model, data))


def inside(data: Any, path: Place) -> Any:
    for part in path:
        data = data[part]
    return data


def spot(text: str, path: Place, *, of_key: bool) -> tuple[int, int]:
    """Line and column of what `path` leads to, by PyYAML alone."""
    node: Any = yaml.compose(text, Loader=yaml.CSafeLoader)
    found = node
    for part in path:
        if isinstance(part, int):
            found = node = node.value[part]
        else:
            key, value = next(pair for pair in node.value if pair[0].value == part)
            found, node = (key if of_key else value), value
    return found.start_mark.line + 1, found.start_mark.column + 1


def refused(table: str, data: dict[str, Any], folder: Path) -> tuple[InputError, str]:
    path = folder / f"{table}.yaml"
    text = yaml.dump(data, Dumper=Plain, sort_keys=False, width=1000)
    path.write_text(text, "utf-8")
    with pytest.raises(InputError) as caught:
        check(path)
    assert caught.value.position is not None, caught.value
    assert caught.value.position.file == path
    return caught.value, text


class Plain(yaml.CSafeDumper):
    """Without anchors for what is the same."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def changed(data: Any, path: Place) -> Any:
    """A copy that can be changed at `path`."""
    copy = data.copy()
    if path:
        copy[path[0]] = changed(data[path[0]], path[1:])
    return copy


def place_of(position: Position | None) -> tuple[int, int]:
    assert position is not None
    return position.line, position.column


@pytest.mark.parametrize("table", TABLES)
def test_a_wrong_key_in_any_row_is_named_with_those_that_are_known(
    table: str, tmp_path: Path
) -> None:
    whole, places = table_of(table)
    for at, model in places:
        data = changed(whole, at)
        inside(data, at)[STRANGE] = 1
        error, text = refused(table, data, tmp_path)
        row = model.OTHERS  # such a key is a row of its own, and 1 is none
        message = f"'{STRANGE}' must be a mapping" if row else f"unknown key '{STRANGE}'"
        assert message in error.message, at
        assert place_of(error.position) == spot(text, (*at, STRANGE), of_key=row is None), at
        for name in keys_of(row or model):
            assert re.search(rf"\b{re.escape(name)}\b", error.hint or ""), at


@pytest.mark.parametrize("table", TABLES)
def test_a_wrong_type_of_any_value_is_named(table: str, tmp_path: Path) -> None:
    whole, places = table_of(table)
    for at, _ in places:
        for key, value in inside(whole, at).items():
            data = changed(whole, at)
            inside(data, at)[key] = {STRANGE: []} if not isinstance(value, dict) else [1]
            error, text = refused(table, data, tmp_path)
            assert place_of(error.position) == spot(text, (*at, key), of_key=False), (at, key)
            assert error.hint, (at, key, error.message)


@pytest.mark.parametrize("table", TABLES)
def test_a_missing_key_of_any_row_is_named(table: str, tmp_path: Path) -> None:
    whole, places = table_of(table)
    for at, model in places:
        for key, field in keys_of(model).items():
            if not field.needed:
                continue
            data = changed(whole, at)
            del inside(data, at)[key]
            error, text = refused(table, data, tmp_path)
            assert f"key '{key}' is missing" in error.message, (at, key)
            assert f"`{key}:`" in (error.hint or ""), (at, key)
            expected = spot(text, at, of_key=False) if data else (1, 1)
            assert place_of(error.position) == expected, (at, key)
