"""YAML as plain data in which every key and value knows its line and column.

Only what a configuration file needs is let in: no Python objects, no second document, no
aliases that grow without limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml
from yaml.constructor import SafeConstructor

from fleet.config.yaml_words import missing_file, plain_words
from fleet.model.errors import InputError, Position

MAX_BYTES = 4 << 20  # ten thousand hosts with ten keys each are 2 MB
MAX_NODES = 100_000  # after aliases are followed; a bomb of nine levels has 10^9
MAX_DEPTH = 64  # groups nest 5 deep in practice; Python's stack ends at about 300 levels

Keys = tuple[str | int, ...]
Spot = tuple[int, int]

_CORE = "tag:yaml.org,2002:"
_SCALARS = ("null", "bool", "int", "float", "str", "timestamp", "merge", "value")
_TEXT_TAGS = ("!unsafe", "!")
_VAULT_TAGS = ("!vault", "!vault-encrypted")
_AMBIGUOUS_INT = re.compile(r"[-+]?0[0-9_]+$")  # octal in YAML 1.1, decimal to everybody


class Vault:
    """A value that ansible-vault encrypted. It is kept so that its use can be refused."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Vault(***)"


@dataclass(frozen=True)
class Document:
    """A YAML file. `data` is plain: dict with str keys, list, str, int, float, bool, None, Vault.

    Keys are the text that stands in the file (`yes:` is "yes"), and so are numbers with a
    colon or a leading zero (`12:30`, `007`) and dates: YAML 1.1 would change them unseen.
    """

    file: Path
    data: dict[str, Any]
    keys: Mapping[Keys, Spot]
    values: Mapping[Keys, Spot]
    texts: Mapping[Keys, str]

    def key(self, path: Keys) -> Position:
        """Where the key of `path` stands; the value's place for items of a list."""
        return Position(self.file, *self.keys.get(path, self._value(path)))

    def value(self, path: Keys) -> Position:
        """Where the value of `path` stands; the nearest parent's place when it has none."""
        return Position(self.file, *self._value(path))

    def text(self, path: Keys) -> str:
        """A scalar as it was written, without quotes; "" for a mapping or list."""
        return self.texts.get(path, "")

    def _value(self, path: Keys) -> Spot:
        while path not in self.values:
            path = path[:-1]
        return self.values[path]


def read(path: Path, error: type[InputError]) -> Document:
    """The mapping in a YAML file. Raises `error` with position, cause and cure."""
    return parse(_text(path, error), path, error)


def parse(text: str, path: Path, error: type[InputError]) -> Document:
    """Like read(), for text that is already here; `path` is for messages."""
    composer = _Composer(text, path, error)
    root = composer.document()
    builder = _Builder(path, error)
    data = builder.build(root, (), 1)
    if not isinstance(data, dict):
        if data is None:
            raise error("the file is empty", position=Position(path), hint="see `fleet schema`")
        raise error(
            f"the top level must be a mapping (key: value), not {describe(data)}",
            position=Position(path, *_spot(root)),
            hint="an INI inventory is converted by `ansible-inventory -i FILE --list --yaml`",
        )
    return Document(path, data, builder.keys, builder.values, builder.texts)


def describe(value: object) -> str:
    """What kind of YAML value it is, for messages: `a list`, `a number`, ... Never the value."""
    kinds: tuple[tuple[type, str], ...] = (
        (bool, "a truth value"),
        (int, "a number"),
        (float, "a number"),
        (str, "text"),
        (list, "a list"),
        (dict, "a mapping"),
        (Vault, "an ansible-vault value"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), "nothing")


def _text(path: Path, error: type[InputError]) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as cause:
        raise missing_file(path, cause, error) from cause
    if len(data) > MAX_BYTES:
        raise error(
            f"the file is larger than {MAX_BYTES >> 20} MB; that is no file of this kind",
            position=Position(path),
            hint="check the path",
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        before = data[: cause.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
        raise error(
            f"the file is not UTF-8 (byte 0x{data[cause.start]:02x})",
            position=Position(path, line, column),
            hint=f"convert it: iconv -f WINDOWS-1252 -t UTF-8 {path}",
        ) from cause


def _spot(node: yaml.Node) -> Spot:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _mark(event: yaml.Event) -> yaml.Mark:
    return cast("yaml.Mark", event.start_mark)


class _Composer:
    """Events → nodes, with depth and aliases under control (PyYAML's own has no limit)."""

    def __init__(self, text: str, path: Path, error: type[InputError]) -> None:
        self._text, self._path, self._error = text, path, error
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml: 10 times as fast
        self._loader = loader
        self._anchors: dict[str, yaml.Node | None] = {}

    def document(self) -> yaml.Node:
        try:
            self._loader = self._loader(self._text)
            return self._document()
        except yaml.YAMLError as cause:
            raise self._syntax(cause) from cause

    def _document(self) -> yaml.Node:
        self._next()
        event = self._next()
        if isinstance(event, yaml.StreamEndEvent):
            return yaml.ScalarNode(f"{_CORE}null", "", _mark(event))
        root = self._node(self._next(), 1)
        self._next()
        more = self._next()
        if not isinstance(more, yaml.StreamEndEvent):
            raise self._fail(
                "a second document starts here; the file must hold one",
                more,
                "remove the line `---`, or put the second part in a file of its own",
            )
        return root

    def _next(self) -> yaml.Event:
        event: yaml.Event = self._loader.get_event()
        return event

    def _fail(self, message: str, event: yaml.Event, hint: str) -> InputError:
        mark = _mark(event)
        return self._error(
            message, position=Position(self._path, mark.line + 1, mark.column + 1), hint=hint
        )

    def _syntax(self, cause: yaml.YAMLError) -> InputError:
        try:  # the slow parser says more, and the same on every machine
            for _ in yaml.parse(self._text, Loader=yaml.SafeLoader):
                pass
        except yaml.YAMLError as better:
            cause = better
        return plain_words(cause, self._text, self._path, self._error)

    def _node(self, event: yaml.Event, depth: int) -> yaml.Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if depth > MAX_DEPTH:
            raise self._fail(
                f"nested deeper than {MAX_DEPTH} levels", event, "flatten the structure"
            )
        if not isinstance(event, yaml.NodeEvent):
            raise self._fail("not valid YAML", event, "check this line")
        if event.anchor:
            self._anchors[event.anchor] = None
        node: yaml.Node
        if isinstance(event, yaml.ScalarEvent):
            tag = event.tag
            if tag is None:
                tag = self._loader.resolve(yaml.ScalarNode, event.value, event.implicit)
            node = yaml.ScalarNode(tag, event.value, _mark(event))
        else:
            node = self._collection(event, depth)
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _collection(self, event: yaml.NodeEvent, depth: int) -> yaml.Node:
        items: list[Any] = []
        if isinstance(event, yaml.SequenceStartEvent):
            while not isinstance(item := self._next(), yaml.SequenceEndEvent):
                items.append(self._node(item, depth + 1))
            tag = getattr(event, "tag", None) or f"{_CORE}seq"
            return yaml.SequenceNode(tag, items, _mark(event))
        while not isinstance(item := self._next(), yaml.MappingEndEvent):
            key = self._node(item, depth + 1)
            items.append((key, self._node(self._next(), depth + 1)))
        return yaml.MappingNode(getattr(event, "tag", None) or f"{_CORE}map", items, _mark(event))

    def _alias(self, event: yaml.AliasEvent) -> yaml.Node:
        name = event.anchor
        if name not in self._anchors:
            raise self._fail(
                f"alias *{name} has no anchor &{name} above it",
                event,
                f"define &{name} first, or quote text that starts with *",
            )
        node = self._anchors[name]
        if node is None:
            raise self._fail(
                f"alias *{name} stands inside its own anchor, that never ends",
                event,
                "refer to another anchor",
            )
        return node


class _Builder:
    """Nodes → data and positions, aliases and merge keys followed."""

    def __init__(self, path: Path, error: type[InputError]) -> None:
        self.keys: dict[Keys, Spot] = {}
        self.values: dict[Keys, Spot] = {}
        self.texts: dict[Keys, str] = {}
        self._path, self._error = path, error
        self._count = 0
        self._scalars = SafeConstructor()

    def _fail(self, message: str, node: yaml.Node, hint: str = "") -> InputError:
        return self._error(message, position=Position(self._path, *_spot(node)), hint=hint)

    def _tick(self, node: yaml.Node, depth: int) -> None:
        self._count += 1
        if self._count > MAX_NODES or depth > MAX_DEPTH:
            raise self._fail(
                f"the file grows beyond {MAX_NODES} values or {MAX_DEPTH} levels when its"
                " aliases are followed",
                node,
                "write the values out instead of nesting aliases",
            )

    def build(self, node: yaml.Node, path: Keys, depth: int) -> object:
        """The data of a node; positions go to `keys`, `values` and `texts`."""
        self._tick(node, depth)
        self.values[path] = _spot(node)
        tag = node.tag.removeprefix(_CORE)
        if isinstance(node, yaml.ScalarNode):
            self.texts[path] = node.value
            return self._scalar(node, tag)
        if tag not in ("map", "seq", *_TEXT_TAGS):
            raise self._tag(node)
        if isinstance(node, yaml.SequenceNode):
            return [
                self.build(item, (*path, index), depth + 1) for index, item in enumerate(node.value)
            ]
        data: dict[str, Any] = {}
        for name, key, value in self._pairs(node, depth):
            here = (*path, name)
            self.keys[here] = _spot(key)
            data[name] = self.build(value, here, depth + 1)
        return data

    def _pairs(self, node: yaml.Node, depth: int) -> list[tuple[str, yaml.Node, yaml.Node]]:
        """Key text, key and value: own keys in order, then merged ones that are not there."""
        self._tick(node, depth)
        own: dict[str, tuple[str, yaml.Node, yaml.Node]] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            if key.tag == f"{_CORE}merge":
                merged += self._sources(value)
                continue
            name = self._name(key)
            if name in own:
                line = _spot(own[name][1])[0]
                raise self._fail(
                    f"key '{name}' is here a second time (first in line {line})",
                    key,
                    "remove one of them, or put both contents under one key",
                )
            own[name] = (name, key, value)
        for source in merged:
            for name, key, value in self._pairs(source, depth + 1):
                self._tick(key, depth)
                own.setdefault(name, (name, key, value))
        return list(own.values())

    def _sources(self, value: yaml.Node) -> list[yaml.Node]:
        nodes = value.value if isinstance(value, yaml.SequenceNode) else [value]
        for node in nodes:
            if not isinstance(node, yaml.MappingNode):
                raise self._fail("`<<` merges mappings only", node, "write `<<: *name`")
        return list(nodes)

    def _name(self, key: yaml.Node) -> str:
        if not isinstance(key, yaml.ScalarNode):
            raise self._fail(
                "a key must be plain text",
                key,
                "put a value that starts with { or [ in quotes",
            )
        tag = key.tag.removeprefix(_CORE)
        if tag not in (*_SCALARS, *_TEXT_TAGS):
            raise self._tag(key)
        if not key.value:
            raise self._fail("a key is empty", key, "write a name before the colon")
        return str(key.value)

    def _tag(self, node: yaml.Node) -> InputError:
        name = node.tag.replace(_CORE, "!!")
        why = "it would run Python code" if "python/" in name else "fleet does not know it"
        return self._fail(f"tag {name} is refused: {why}", node, "remove the tag")

    def _scalar(self, node: yaml.ScalarNode, tag: str) -> object:
        if tag in _VAULT_TAGS:
            return Vault()
        if tag in _TEXT_TAGS:
            return node.value
        if tag not in _SCALARS:
            raise self._tag(node)
        if tag == "null":
            return None
        if tag in ("int", "float") and (":" in node.value or _AMBIGUOUS_INT.match(node.value)):
            return node.value
        if tag not in ("bool", "int", "float"):
            return node.value
        try:
            return getattr(self._scalars, f"construct_yaml_{tag}")(node)
        except (ValueError, KeyError, IndexError) as cause:
            raise self._fail(f"this is no {tag}", node, "remove the tag or quote it") from cause
