"""Mistakes of language that no reader should find in a message, searched in every text literal."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

FLEET = Path(__file__).parents[1] / "fleet"
HOLE = "{}"
SPELLED = "AEFHILMNORSX"  # letters whose names begin with a vowel: an HTP, an NPU
SPOKEN = {"SHA", "LAN", "NUL", "README"}  # read as words
YOU = re.compile(r"u(dev|id|ni(?!n|m)|s[aeiu]|til|ri\b|rl)|eu|one|once", re.IGNORECASE)
VOWEL = re.compile(r"hour|hon|x86|x64|https?\b|ssh|sftp|mllm|mksh|ld\b", re.IGNORECASE)
ARTICLE = re.compile(r"(?<![\w`'./{}-])([Aa]|[Aa]n) [`'\"]?([A-Za-z]\w*)(?= [a-z]|[-,;:.`'\" ]|$)")
TWICE = re.compile(r"((?:\w+ )+\w+): \1\b")
EMPTY = re.compile(r"(?<=[a-z] )\(\s*\)(?!.*[\]\\])")


def texts() -> Iterator[tuple[str, str]]:
    """Each string literal of the code with its place; `{}` stands for a value."""
    for path in sorted(FLEET.rglob("*.py")):
        place = str(path.relative_to(FLEET.parent))
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        parts = set[int]()
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                parts |= {id(value) for value in node.values}
                yield f"{place}:{node.lineno}", "".join(map(part, node.values))
        for node in nodes:
            if isinstance(node, ast.Constant) and id(node) not in parts:
                yield f"{place}:{node.lineno}", part(node) if isinstance(node.value, str) else ""


def part(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else HOLE


def sounds_like_a_vowel(word: str) -> bool:
    """Of the words that fleet has."""
    capitals = re.match("[A-Z]*", word)
    if VOWEL.match(word):
        return True
    if capitals and len(capitals[0]) > 1 and word not in SPOKEN and capitals[0] not in SPOKEN:
        return word[0] in SPELLED
    return word[0].lower() in "aeiou" and not YOU.match(word)


def mistakes(text: str) -> list[str]:
    """Wrong articles, a prefix that stands twice, empty parentheses."""
    found = [
        match[0]
        for match in ARTICLE.finditer(text)
        if match[0][:2] != "A " and (match[1].lower() == "an") != sounds_like_a_vowel(match[2])
    ]
    return found + [match[0] for rule in (TWICE, EMPTY) for match in rule.finditer(text)]


def test_no_message_has_a_mistake_of_language() -> None:
    found = {place: wrong for place, text in texts() if (wrong := mistakes(text))}
    assert not found, found


@pytest.mark.parametrize(
    "text",
    [
        "writes an playbook", "a inventory", "a HTP backend", "an user", "an NUL byte",
        "too few runs: too few runs: 2", "lab002: ok () in 0.7 s",
    ],
)  # fmt: skip
def test_mistakes_are_found(text: str) -> None:
    assert mistakes(text)


@pytest.mark.parametrize(
    "text",
    [
        "an x86_64 board", "a udev rule", "an SDK", "a SHA-256 of it", "an hour", "a unit",
        "A and B", "an https address", "an unused file", "an NPU", "str() of it", "a URL",
    ],
)  # fmt: skip
def test_right_words_are_left_alone(text: str) -> None:
    assert not mistakes(text)
