"""A plan is plain data: it can be kept, compared and sent to another machine."""

from __future__ import annotations

import dataclasses
import inspect
import json
import pickle
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

import fleet.ops.system.steps_files
import fleet.ops.system.steps_users  # noqa: F401 - its actions are looked at as well
from fleet.model import plan
from fleet.model.files import FileRef
from fleet.model.manifest import Manifest
from fleet.model.plain import field_names, to_plain
from fleet.model.plan import (
    Action,
    Blob,
    Delta,
    Piece,
    PruneReleases,
    SendBlobs,
    StageRelease,
    SwitchRelease,
)
from fleet.model.secret import Secret

# A Secret is a text that nobody may write down: fleet/model/secret.py refuses to.
LEAVES = {str, int, float, bool, bytes, type(None), Path, Secret}
CONTAINERS = {tuple, frozenset, Mapping, Union, types.UnionType}


def actions(kind: type[Action] = Action) -> Iterator[type[Any]]:
    for action in kind.__subclasses__():
        yield action
        yield from actions(action)


def odd(hint: Any, where: str, known: set[type]) -> list[str]:
    """What of a type cannot be written down; `Any` is JSON, as the value of a mapping only."""
    if hint in LEAVES or hint is Ellipsis:
        return []
    if get_origin(hint) in CONTAINERS:
        inner = [part for part in get_args(hint) if (get_origin(hint), part) != (Mapping, Any)]
        return [text for part in inner for text in odd(part, where, known)]
    names = field_names(hint)
    if not (names or dataclasses.is_dataclass(hint)) or not isinstance(hint, type):
        return [f"{where}: {hint}"]
    if hint in known:
        return []
    known.add(hint)
    hints = get_type_hints(hint)
    return [text for name in names for text in odd(hints[name], f"{hint.__name__}.{name}", known)]


def kinds() -> list[type[Any]]:
    classes = [kind for _, kind in inspect.getmembers(plan, inspect.isclass)]
    ours = {kind for kind in classes if kind.__module__ == plan.__name__}
    return sorted(ours.union(actions()), key=lambda kind: str(kind.__name__))


@pytest.mark.parametrize("kind", kinds())
def test_every_action_and_plan_holds_plain_data_only(kind: type) -> None:
    assert odd(kind, kind.__name__, set()) == []


def test_actions_are_the_same_after_a_journey() -> None:
    item = FileRef(Path("/x/model.bin"), "model.bin", 3 << 16, "a" * 64)
    delta = Delta("b" * 64, (Piece(0, 1 << 16, 2, 1), Piece(1 << 16, 3 << 16)), "c" * 64)
    blob = Blob(item, 0, "b" * 64, delta, "late-1", ("c" * 64,))
    app = Manifest("app", (item,), {"A": "{release}/b"}, ("B",), {"kind": "files"})
    steps = (
        SendBlobs((blob,)),
        StageRelease(app),
        SwitchRelease("app", app.id),
        PruneReleases("app", 2),
    )
    assert pickle.loads(pickle.dumps(steps)) == steps
    told = [to_plain(action) for action in steps]
    assert json.loads(json.dumps(told)) == told
