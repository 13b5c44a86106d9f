"""Frozen classes are what the standard library makes of them."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
from dataclasses import field
from typing import Any, ClassVar

import pytest

import fleet
from fleet.model.frozen import dataclass


class Shape:
    """Written once, made twice."""

    size: int
    name: str = "x"
    kinds: ClassVar[tuple[str, ...]] = ("a",)
    parts: list[int] = field(default_factory=list)
    note: str = field(default="n", compare=False, repr=False)
    made: str = field(default="later", init=False)
    table: dict[str, int] = field(default_factory=dict, init=False, hash=False)

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("size")


@dataclass(frozen=True)
class Shaped:
    """One that is made here."""


def twins(**names: Any) -> tuple[Any, Any]:
    body = {
        key: value for key, value in vars(Shape).items() if key not in {"__dict__", "__weakref__"}
    }
    ours = type("Shape", (), copy.copy(body) | names)
    theirs = type("Shape", (), copy.copy(body) | names)
    return dataclass(frozen=True)(ours), dataclasses.dataclass(frozen=True)(theirs)


def told(cls: Any) -> Any:
    one, other = cls(1, parts=[3]), cls(1, "x", [3], "other")
    found: list[Any] = [repr(one), one == other, one != cls(2), one == 1, dataclasses.asdict(one)]
    found += [cls.__match_args__, cls.kinds, one.made, cls.made, hasattr(cls, "parts")]
    found += [[f.name for f in dataclasses.fields(one)], dataclasses.is_dataclass(cls)]
    found += [dataclasses.replace(one, size=7).size, one.parts is other.parts, one.table]
    for act in (
        lambda: setattr(one, "size", 2),
        lambda: setattr(one, "other", 2),
        lambda: delattr(one, "size"),
        lambda: hash(one),
        lambda: cls(-1),
        cls,
        lambda: cls(1, made="x"),
    ):
        with pytest.raises(Exception) as info:  # noqa: PT011 - which is compared
            act()
        found.append((info.type, str(info.value)))
    parameters = inspect.signature(cls).parameters
    found += [[(p.name, p.kind, p.annotation) for p in parameters.values()]]
    return found


def test_a_class_is_as_that_of_the_standard_library() -> None:
    ours, theirs = twins()
    assert told(ours) == told(theirs)


def test_methods_of_its_own_stay() -> None:
    own = {"__repr__": lambda _: "own", "__eq__": lambda *_: True, "__hash__": lambda _: 4}
    ours, theirs = twins(**own)
    for cls in (ours, theirs):
        assert (repr(cls(1)), cls(1) == cls(2), hash(cls(1))) == ("own", True, 4)


def test_subclasses_of_both_kinds() -> None:
    @dataclass(frozen=True)
    class Base:
        host: str

    @dataclasses.dataclass(frozen=True)
    class Theirs(Base):
        text: str = ""

    @dataclass(frozen=True)
    class Ours(Theirs):
        host: str = "b"
        more: int = 1

    assert repr(Ours("a", "t", 2)).endswith("Ours(host='a', text='t', more=2)")
    assert Ours() == Ours("b") != Theirs("b")
    assert len({Ours(), Ours("b"), Ours("c")}) == 2


def test_one_that_is_changed_is_left_to_the_standard_library() -> None:
    @dataclass
    class Counter:
        n: int = 0

    counter = Counter()
    counter.n += 1
    assert counter == Counter(1)


def classes() -> list[Any]:
    """All frozen classes of fleet that are made here."""
    found = []
    for module in pkgutil.walk_packages(fleet.__path__, "fleet."):
        if ".model." not in module.name and ".ops." not in module.name:
            continue
        named = vars(importlib.import_module(module.name)).values()
        found += [
            one
            for one in named
            if isinstance(one, type)
            and one.__module__ == module.name
            and "__dataclass_fields__" in vars(one)
            and vars(one).get("__setattr__") is vars(Shaped)["__setattr__"]
        ]
    return found


def test_every_class_is_built_as_the_standard_library_would() -> None:
    """Its fields, in their order, with defaults; and it goes through a pickle."""
    every = classes()
    assert len(every) > 80
    for cls in every:
        space = dict(vars(cls))
        own = space["__dataclass_fields__"]
        space |= {name: own[name] for name in vars(cls).get("__annotations__", {}) if name in own}
        for made in ("__init__", "__dict__", "__weakref__", "__dataclass_fields__", "__setattr__",
                     "__delattr__", "__dataclass_params__", "__match_args__"):  # fmt: skip
            space.pop(made, None)
        bases = tuple(base for base in cls.__bases__)
        theirs: Any = dataclasses.dataclass(frozen=True)(type(cls.__name__, bases, space))
        ours, standard = inspect.signature(cls), inspect.signature(theirs)
        assert list(ours.parameters) == list(standard.parameters), cls
        assert [p.annotation for p in ours.parameters.values()] == [
            p.annotation for p in standard.parameters.values()
        ], cls
        assert cls.__match_args__ == theirs.__match_args__


def test_it_travels() -> None:
    from fleet.model.events import Warned

    said = Warned("b", "text")
    assert pickle.loads(pickle.dumps(said)) == copy.deepcopy(said) == said
    assert hash(said) == hash(Warned("b", "text"))
