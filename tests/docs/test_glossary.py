"""docs/glossary.md has at most 30 terms, and the old words are gone from the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TERMS = 30
CLASS_NAMES = 5
# What a person searches for in vain: the old word, and what it is called now.
OLD = {
    "hand": "device worker",
    "seal": "stamp",
    "sealed": "stamped",
    "spare": "recyclable blob",
    "spares": "recyclable blobs",
    "depot": "transfer context",
    "pace": "transfer options",
    "squeezing": "compression",
    "squeezed": "compressed",
    "growing": "streaming delta",
    "ahead": "speculative send",
    "carousel": "broadcast",
    "errand": "remote job",
    "errands": "remote jobs",
    "homecoming": "result collection",
    "crew": "executor",
    "workbench": "resolver, release builder",
    "heeded": "honoured",
}
ORDINARY = {"hand", "ahead", "growing", "pace"}  # English words: forbidden as names, not in prose
CODE = re.compile(r"`[^`]*`")  # words of the wire and of files, as they are written there
PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
# Words of the wire and of records that are kept: older boards and records have them.
KEPT = {"sealed", "spare", "pace"}


@cache
def modules() -> tuple[tuple[Path, ast.Module], ...]:
    paths = sorted((ROOT / "fleet").rglob("*.py"))
    return tuple((path, ast.parse(path.read_text("utf-8"))) for path in paths)


def names_in(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    yield 1, path.stem
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def prose_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and isinstance(node, ast.Constant) and len(text.split()) >= 3:
            yield node.lineno, CODE.sub("", text)


def test_at_most_thirty_terms_each_with_a_meaning() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| **")]
    assert 20 <= len(rows) <= TERMS
    assert all(len(row) == 3 and row[1].strip().endswith(".") for row in rows)


def test_no_old_word_is_a_name() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}: {OLD[part]}"
        for path, tree in modules()
        for line, name in names_in(path, tree)
        for part in {part.lower() for part in PARTS.findall(name)} & OLD.keys()
        if name not in KEPT
    ]
    assert not wrong, "\n".join(wrong)


def test_no_old_word_is_in_a_text() -> None:
    old = re.compile(rf"\b({'|'.join(OLD.keys() - ORDINARY)})\b", re.IGNORECASE)
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {match[0]}: {OLD[match[0].lower()]}"
        for path, tree in modules()
        for line, text in prose_in(tree)
        if (match := old.search(text))
    ]
    assert not wrong, "\n".join(wrong)


def test_loop_variables_are_nouns() -> None:
    wrong = []
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
                names = [name.id for name in ast.walk(node.target) if isinstance(name, ast.Name)]
                wrong += [f"{path.relative_to(ROOT)}:{node.target.lineno}"] * names.count("one")
    assert not wrong, "\n".join(wrong)


def test_public_classes_have_names_of_their_own() -> None:
    places: dict[str, list[str]] = {}
    for path, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert len(twice) <= CLASS_NAMES, twice
