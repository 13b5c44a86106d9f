"""YAML as plain data in which every key and value knows its line and column.

The reader accepts only what a configuration file needs: no Python objects, no second document, no
aliases that grow without limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor

from fleet.config.problems import Problems, missing_file, plain_words, printable
from fleet.model.errors import InputError, Position

MAX_BYTES = 4 << 20  # ten thousand hosts with ten keys each are 2 MB
MAX_NODES = 100_000  # after expanding aliases; a bomb of nine levels has 10^9
MAX_DEPTH = 64  # groups nest 5 deep in practice; Python's stack ends at about 300 levels
CORE = "tag:yaml.org,2002:"

Keys = tuple[str | int, ...]
Spot = tuple[int, int]  # line and column

_SCALARS = ("null", "bool", "int", "float", "str", "timestamp", "merge", "value")
_TEXT_TAGS = ("!unsafe", "!")
_VAULT_TAGS = ("!vault", "!vault-encrypted")
_AMBIGUOUS_INT = re.compile(r"[-+]?0[0-9_]+$")  # octal in YAML 1.1, decimal for people


class Vault:
    """A value encrypted by ansible-vault. It is kept so that its use can be refused."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Vault(***)"


@dataclass(frozen=True)
class Document:
    """A YAML file. `data` is plain: dict with str keys, list, str, int, float, bool, None, Vault.

    Keys have the text of the file (`yes:` is "yes"). So have dates, and numbers with a colon or a
    leading zero (`12:30`, `007`), because YAML 1.1 would change them silently.
    """

    file: Path
    data: dict[str, Any]
    keys: Mapping[Keys, Spot]
    values: Mapping[Keys, Spot]
    texts: Mapping[Keys, str]

    def key(self, path: Keys) -> Position:
        """Return the position of the key of `path`; for an item of a list, the position of its
        value.
        """
        return Position(self.file, *self.keys.get(path, self._value(path)))

    def value(self, path: Keys) -> Position:
        """Return the position of the value of `path`, or of its nearest parent that has one."""
        return Position(self.file, *self._value(path))

    def text(self, path: Keys) -> str:
        """Return a scalar as written in the file, without quotes; "" for a mapping or list."""
        return self.texts.get(path, "")

    def _value(self, path: Keys) -> Spot:
        while path not in self.values:
            path = path[:-1]
        return self.values[path]


def read(path: Path, error: type[InputError], problems: Problems | None = None) -> Document:
    """Return the mapping in a YAML file. Raises `error` with position, cause and cure.

    Keys that occur twice are added to `problems`, so that they hide no other errors.
    """
    return parse(_text(path, error), path, error, problems)


def parse(
    text: str, path: Path, error: type[InputError], problems: Problems | None = None
) -> Document:
    """Return the mapping in a YAML text; `path` is for messages. Raises `error` like `read`."""
    root = _composed(text, path, error)
    builder = _Builder(path, error, problems)
    data = builder.build(root, (), 1)
    if not isinstance(data, dict):
        if data is None:
            raise error(
                "the file is empty",
                position=Position(path),
                hint="write the file as in the documentation (docs/README.md); fleet config schema "
                "-h (lists the formats)",
            )
        raise error(
            f"the top level must be a mapping (key: value), not {describe(data)}",
            position=Position(path, *spot(root)),
            hint="write `key: value` lines; ansible-inventory -i FILE --list --yaml (converts INI)",
        )
    return Document(path, data, builder.keys, builder.values, builder.texts)


def plain(data: object, path: Path) -> Document:
    """Return the result of another reader as a document without positions; `path` is its file."""
    texts: dict[Keys, str] = {}
    stack: list[tuple[Keys, object]] = [((), data)]
    while stack:
        where, value = stack.pop()
        if isinstance(value, dict):
            stack += [((*where, key), item) for key, item in value.items()]
        elif isinstance(value, str):
            texts[where] = value
    return Document(path, data if isinstance(data, dict) else {}, {}, {(): (1, 1)}, texts)


def describe(value: object) -> str:
    """Return the kind of a YAML value for messages (`a list`, `a number`, ...), never the value."""
    kinds: tuple[tuple[type, str], ...] = (
        (bool, "a boolean"),
        (int, "a number"),
        (float, "a decimal number"),
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
            f"the file is larger than {MAX_BYTES >> 20} MB, the limit for YAML files",
            position=Position(path),
            hint=f"check that the path is right: ls -l {path}",
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


if TYPE_CHECKING or not yaml.__with_libyaml__:
    _Parser = yaml.SafeLoader
else:  # libyaml is ten times as fast; the steps of its own composer cannot be limited

    class _Parser(Composer, yaml.CSafeLoader):
        __init__ = yaml.CSafeLoader.__init__


class _Loader(_Parser):
    """A loader with limits for nesting and aliases, which PyYAML does not have."""

    def __init__(self, text: str, path: Path, error: type[InputError]) -> None:
        super().__init__(text)
        self.anchors: dict[str, yaml.Node] = {}
        self._path, self._error = path, error
        self._above: list[str | None] = []  # the anchor, or None, of each node above the current

    def fail(self, message: str, at: object, hint: str) -> InputError:
        """Return the error at the position of an event or node."""
        return self._error(message, position=Position(self._path, *spot(at)), hint=hint)

    def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401 - as PyYAML has it
        """Return the next node. Raises the error for a deep node, and for an alias of no node."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        name = event.anchor
        if isinstance(event, yaml.AliasEvent):
            if name in self._above:
                message = f"the alias *{name} refers to an anchor that contains the alias itself"
                raise self.fail(message, event, "use another anchor")
            if name not in self.anchors:
                message = f"the alias *{name} is used before its anchor &{name}"
                cure = f"define &{name} first, or quote text that starts with *"
                raise self.fail(message, event, cure)
            return super().compose_node(parent, index)
        if len(self._above) >= MAX_DEPTH:
            message = f"the YAML is nested more than {MAX_DEPTH} levels deep"
            raise self.fail(message, event, "use fewer levels")
        self.anchors.pop(name, None)  # a second anchor of the same name is allowed
        self._above.append(name)
        node: Any = super().compose_node(parent, index)
        self._above.pop()
        if event.tag == "!":  # text, whatever it looks like
            node.tag = event.tag
        return node


def _composed(text: str, path: Path, error: type[InputError]) -> yaml.Node:
    """Return the only document, or null for an empty file."""
    try:
        loader: Any = _Loader(text, path, error)
        loader.get_event()
        if loader.check_event(yaml.StreamEndEvent):
            return yaml.ScalarNode(f"{CORE}null", "", loader.get_event().start_mark)
        root: yaml.Node = loader.compose_document()
        more = loader.get_event()
    except yaml.YAMLError as cause:
        why = cause
        try:  # the slow parser gives more details, the same on every machine
            for _ in yaml.parse(text, Loader=yaml.SafeLoader):
                pass
        except yaml.YAMLError as better:
            why = better
        # PyYAML quotes lines, which may contain secrets
        raise plain_words(why, text, path, error) from None
    if not isinstance(more, yaml.StreamEndEvent):
        raise loader.fail(
            "the file contains a second YAML document",
            more,
            "remove the line `---`, or put the second part in a file of its own",
        )
    return root


def spot(node: Any) -> Spot:  # noqa: ANN401 - a node or an event
    """Return line and column of a node or an event, from 1."""
    return node.start_mark.line + 1, node.start_mark.column + 1


class _Builder:
    """A converter of nodes to data and positions, which resolves aliases and merge keys."""

    def __init__(self, path: Path, error: type[InputError], problems: Problems | None) -> None:
        self.keys: dict[Keys, Spot] = {}
        self.values: dict[Keys, Spot] = {}
        self.texts: dict[Keys, str] = {}
        self._path, self._error, self._problems = path, error, problems
        self._count = 0
        self._scalars = SafeConstructor()

    def _fail(self, message: str, node: yaml.Node, hint: str = "") -> InputError:
        position = Position(self._path, *spot(node))
        return self._error(printable(message), position=position, hint=hint)

    def _tick(self, node: yaml.Node, depth: int) -> None:
        self._count += 1
        if self._count > MAX_NODES or depth > MAX_DEPTH:
            raise self._fail(
                f"the file grows beyond {MAX_NODES} values or {MAX_DEPTH} levels when its"
                " aliases are followed",
                node,
                "write the values out, without nested aliases",
            )

    def build(self, node: yaml.Node, path: Keys, depth: int) -> object:
        """Return the data of a node; positions and texts go to `keys`, `values` and `texts`."""
        self._tick(node, depth)
        self.values[path] = spot(node)
        tag = node.tag.removeprefix(CORE)
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
            self.keys[here] = spot(key)
            data[name] = self.build(value, here, depth + 1)
        return data

    def _pairs(self, node: yaml.Node, depth: int) -> list[tuple[str, yaml.Node, yaml.Node]]:
        """Return name, key node and value node: own keys in order, then the merged keys that are
        missing.
        """
        self._tick(node, depth)
        own: dict[str, tuple[str, yaml.Node, yaml.Node]] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            if key.tag == f"{CORE}merge":
                merged += self._sources(value)
                continue
            name = self._name(key)
            if name in own:
                line = spot(own[name][1])[0]
                repeated = self._fail(
                    f"the key '{name}' occurs twice (the first time in line {line})",
                    key,
                    "remove one of the two, or put both contents under one key",
                )
                if self._problems is None or repeated.position is None:
                    raise repeated
                self._problems.take(repeated, repeated.position)
                continue
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
                raise self._fail(
                    "the value of `<<` must be an alias of a mapping", node, "write `<<: *name`"
                )
        return list(nodes)

    def _name(self, key: yaml.Node) -> str:
        if not isinstance(key, yaml.ScalarNode):
            raise self._fail(
                "a key must be plain text", key, "put a value that starts with { or [ in quotes"
            )
        tag = key.tag.removeprefix(CORE)
        if tag not in (*_SCALARS, *_TEXT_TAGS):
            raise self._tag(key)
        if not key.value:
            raise self._fail("the key before the colon is empty", key, "write a key, like `name:`")
        return str(key.value)

    def _tag(self, node: yaml.Node) -> InputError:
        name = node.tag.replace(CORE, "!!")
        why = "it would run Python code" if "python/" in name else "fleet does not know this tag"
        return self._fail(
            f"fleet does not accept the YAML tag {name}: {why}", node, f"remove {name}"
        )

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
            raise self._fail(
                f"'{node.value}' does not fit the YAML tag !!{tag}",
                node,
                f"remove the tag !!{tag}, or put the value in quotes",
            ) from cause
