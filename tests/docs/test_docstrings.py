"""A lint of the prose in the code. The rules are in CONTRIBUTING.md, "Plain words".

It judges the form only: the first word, the length of a sentence, names that are participles.
Run it alone with `pytest tests/docs/test_docstrings.py`; each finding is a line `file:line: text`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 30  # words of a sentence
# Folders that are not rewritten yet. This list may only shrink: a folder without findings fails.
OPEN = frozenset(
    """
    fleet/bundles
    fleet/doctor
    fleet/doctor/checks
    fleet/triage
    """.split()  # noqa: SIM905
)
RIDDLES = frozenset(
    "all as how of one that those what where whether which who why".split()  # noqa: SIM905
)
WORDS = [
    word
    for line in (Path(__file__).parent / "verbs.txt").read_text("utf-8").splitlines()
    for word in line.split()
    if not line.startswith("#")
]
VERBS = {word.rstrip("*") for word in WORDS}
NOUNS = {word.rstrip("*") for word in WORDS if word.endswith("*")}
PARTICIPLES = frozenset("one told said found seen heard dumb made_over".split())  # noqa: SIM905
PROPERTIES = re.compile(r"(?:cached_)?property$|\.(?:setter|getter)$")
OPENING = re.compile(r"[A-Za-z]+")
END = re.compile(r"(?<=[.!?:;])[\"')]*\s+|\n\s*\n|\n(?=\s*(?:[-*|]|\d+\. ))")

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def modules() -> dict[str, list[Path]]:
    """Return the modules of each folder."""
    folders: dict[str, list[Path]] = {}
    for path in sorted((ROOT / "fleet").rglob("*.py")):
        folders.setdefault(path.parent.relative_to(ROOT).as_posix(), []).append(path)
    return folders


def is_property(node: ast.AST) -> bool:
    decorators = getattr(node, "decorator_list", ())
    return any(PROPERTIES.search(ast.unparse(word)) for word in decorators)


def opening_error(node: Documented, text: str) -> str:
    """Return what is wrong with the first word, "" if nothing is."""
    first = text.split(maxsplit=1)[0]
    word = match[0].lower() if (match := OPENING.match(first)) else ""
    if word in RIDDLES:
        return f"begins with {first!r}: say the thing"
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        if not is_property(node) and word not in VERBS:
            return (
                f"begins with {first!r}: a function begins with a verb of verbs.txt (Return, Send)"
            )
    elif word in VERBS - NOUNS:
        return f"begins with {first!r}: a class or module begins with a noun"
    return ""


def long_sentences(text: str) -> Iterator[str]:
    lines = (line for line in text.splitlines() if not line.startswith((" ", "|")))
    prose = "\n".join(line for line in lines if "  " not in line)  # no tables, no trees
    for sentence in END.split(prose):
        count = len(sentence.split())
        if count > LONGEST:
            yield f"a sentence of {count} words (≤ {LONGEST}): {' '.join(sentence.split())[:50]}"


def docstring_findings(node: Documented) -> Iterator[str]:
    if text := ast.get_docstring(node):
        if error := opening_error(node, text):
            yield error
        yield from long_sentences(text)


def name_of(node: ast.AST) -> str:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
            return name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return name
    return ""


def comment_findings(path: str, text: str) -> Iterator[str]:
    lines = ["", *text.splitlines()]
    for number, line in enumerate(lines):
        starts = line.lstrip().startswith("# ") and not lines[number - 1].lstrip().startswith("#")
        if starts and (word := line.split()[1].strip(".,:").lower()) in RIDDLES:
            yield f"{path}:{number}: a comment begins with {word!r}: say the thing"


def findings(path: str, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Documented):
            line = node.body[0].lineno if node.body else 1
            yield from (f"{path}:{line}: {error}" for error in docstring_findings(node))
        if (name := name_of(node)).strip("_") in PARTICIPLES:
            line = getattr(node, "lineno", 1)
            yield f"{path}:{line}: the name {name!r}: use a noun (result, match, answer)"
    yield from comment_findings(path, text)


def folder_findings(folder: str) -> Iterator[str]:
    for path in modules()[folder]:
        yield from findings(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))


def test_finished_folders_are_in_plain_words() -> None:
    finished = sorted(modules().keys() - OPEN)
    wrong = [finding for folder in finished for finding in folder_findings(folder)]
    assert not wrong, "\n".join(wrong)


def test_open_folders_have_findings() -> None:
    finished = [folder for folder in sorted(OPEN) if not any(folder_findings(folder))]
    assert not finished, f"these folders have no findings, remove them from OPEN: {finished}"


@pytest.mark.parametrize(
    ("code", "finding"),
    [
        ('"""Where errors become ours."""', "begins with 'Where'"),
        ('"""Send packets."""', "begins with a noun"),
        ('class A:\n    """How it behaves."""', "begins with 'How'"),
        ('def a():\n    """The size."""', "begins with a verb"),
        ('def a():\n    """Returns the size."""', "begins with a verb"),
        (f'def a():\n    """Return {"a " * 30}b."""', "a sentence of 32 words"),
        ("told = 1", "the name 'told'"),
        ("def a(self, found): ...", "the name 'found'"),
        ("# What is left.\na = 1", "a comment begins with 'what'"),
    ],
)
def test_the_lint_finds(code: str, finding: str) -> None:
    (error,) = findings("fleet/a.py", code)
    assert finding in error
    assert error.startswith("fleet/a.py:")


@pytest.mark.parametrize(
    "code",
    [
        '"""Packets of adb."""',
        'class A:\n    """A run of a suite. Raises FleetError."""',
        'def a():\n    """Return the size in bytes, 0 if the file is empty."""',
        '@property\ndef a():\n    """The size in bytes."""',
        "# The kernel does this,\n# one page at a time.\na = 1",
    ],
)
def test_the_lint_accepts(code: str) -> None:
    assert not list(findings("fleet/a.py", code))
