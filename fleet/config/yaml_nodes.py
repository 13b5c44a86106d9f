"""YAML events → nodes, with limits for nesting and aliases (PyYAML's composer has no limit)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import yaml

from fleet.config.yaml_words import plain_words
from fleet.model.errors import InputError, Position

MAX_DEPTH = 64  # groups nest 5 deep in practice; Python's stack ends at about 300 levels
CORE = "tag:yaml.org,2002:"

Spot = tuple[int, int]  # line and column


def spot(node: yaml.Node) -> Spot:
    """Return line and column of a node, from 1."""
    return node.start_mark.line + 1, node.start_mark.column + 1


def _mark(event: yaml.Event) -> yaml.Mark:
    return cast("yaml.Mark", event.start_mark)


class Composer:
    """A composer of the node graph of a text; `path` and `error` are for messages."""

    def __init__(self, text: str, path: Path, error: type[InputError]) -> None:
        self._text, self._path, self._error = text, path, error
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml: 10 times as fast
        self._loader = loader
        self._anchors: dict[str, yaml.Node | None] = {}

    def document(self) -> yaml.Node:
        """Return the only document, or null for an empty file. Raises `error` for an error in the
        YAML.
        """
        try:
            self._loader = self._loader(self._text)
            return self._document()
        except yaml.YAMLError as cause:
            raise self._syntax(cause) from None  # PyYAML quotes lines, which may contain secrets

    def _document(self) -> yaml.Node:
        self._next()
        event = self._next()
        if isinstance(event, yaml.StreamEndEvent):
            return yaml.ScalarNode(f"{CORE}null", "", _mark(event))
        root = self._node(self._next(), 1)
        self._next()
        more = self._next()
        if not isinstance(more, yaml.StreamEndEvent):
            raise self._fail(
                "the file contains a second YAML document",
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
        try:  # the slow parser gives more details, the same on every machine
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
                f"the YAML is nested more than {MAX_DEPTH} levels deep", event, "use fewer levels"
            )
        if not isinstance(event, yaml.NodeEvent):
            raise self._fail("not valid YAML", event, "check quotes, colons and indentation")
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
            tag = getattr(event, "tag", None) or f"{CORE}seq"
            return yaml.SequenceNode(tag, items, _mark(event))
        while not isinstance(item := self._next(), yaml.MappingEndEvent):
            key = self._node(item, depth + 1)
            items.append((key, self._node(self._next(), depth + 1)))
        return yaml.MappingNode(getattr(event, "tag", None) or f"{CORE}map", items, _mark(event))

    def _alias(self, event: yaml.AliasEvent) -> yaml.Node:
        name = event.anchor
        if name not in self._anchors:
            raise self._fail(
                f"the alias *{name} is used before its anchor &{name}",
                event,
                f"define &{name} first, or quote text that starts with *",
            )
        node = self._anchors[name]
        if node is None:
            raise self._fail(
                f"the alias *{name} refers to an anchor that contains the alias itself",
                event,
                "use another anchor",
            )
        return node
