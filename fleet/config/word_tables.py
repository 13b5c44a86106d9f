"""The doctor's tables of words: what a log is about, what speaks of success, and what it says."""

from __future__ import annotations

import re
from typing import Annotated

from fleet.config.shape import Body
from fleet.config.values import After
from fleet.model.errors import InputError


def _pattern(text: str) -> str:
    """RE2 belongs to the doctor; what Python's `re` knows too, without look-around, RE2 knows."""
    try:
        everywhere = re.compile(text).search("") is not None
    except re.error as error:
        raise InputError(
            f"'{text}' is not a valid regular expression: {error}", hint=_SYNTAX
        ) from error
    if _LOOKS.search(text):
        raise InputError(f"'{text}' uses syntax that RE2 does not have", hint=_SYNTAX)
    if everywhere:
        raise InputError(f"'{text}' matches every line", hint="match at least one character")
    return text


_LOOKS = re.compile(r"(?<!\\)\((\?<?[=!]|\?P=)|(?<!\\)\\[1-9]")
_SYNTAX = "correct the expression; RE2 syntax has no look-around and no back references"
Pattern = Annotated[str, After(_pattern)]


class _Benign(Body, frozen=True, kw_only=True):
    match: Pattern
    source: str


class BenignLines(Body, frozen=True, kw_only=True):
    """benign.yaml: lines that look like a failure and are none."""

    patterns: list[_Benign]


class _Succeeded(_Benign, frozen=True, kw_only=True):
    needs: Pattern = ""
    weak: bool = False  # it ends no error before it


class Success(Body, frozen=True, kw_only=True):
    """success.yaml: lines by which a program says that its work was done, and doubts of it."""

    patterns: list[_Succeeded]
    lasting: list[str]
    doubts: list[Pattern]
    failure_words: list[Pattern]


class ContextWords(Body, frozen=True, kw_only=True):
    """context_words.yaml: what a log is about."""

    npu: list[Pattern]
    chip: list[Pattern]
    transport: list[Pattern]
    shell: list[Pattern]
    phone: list[Pattern]
    link: list[Pattern]
    device: list[Pattern]
    runtime: list[Pattern]
    loader: list[Pattern]
    build: list[Pattern]
    workstation: list[Pattern]
    foreign: list[Pattern]
    board: list[Pattern]
    document: list[Pattern]


class _Step(Body, frozen=True, kw_only=True):
    id: str
    when: str
    text: str
    command: str = ""


class NextSteps(Body, frozen=True, kw_only=True):
    """next_steps.yaml: what to do where nothing is recognised."""

    steps: list[_Step]


class _Sentence(Body, frozen=True, kw_only=True):
    match: str
    says: str


class _Kind(Body, frozen=True, kw_only=True):
    id: str
    match: Pattern


class _Unsure(Body, frozen=True, kw_only=True):
    subjects: list[str]
    symptoms: list[str]


class Families(Body, frozen=True, kw_only=True):
    """families.yaml: what a line is about, and what is wrong with it."""

    unsure: _Unsure
    subjects: list[_Kind]
    symptoms: list[_Kind]
    table: dict[str, dict[str, str]]


class Sentences(Body, frozen=True, kw_only=True):
    """sentences.yaml: what common lines say that are no cause of their own."""

    sentences: list[_Sentence]


class PlatformWords(Body, frozen=True, kw_only=True):
    """platform_words.yaml: by which words a log is of a platform."""

    android: list[Pattern]
    windows: list[Pattern]
    linux: list[Pattern]


class _Instead(Body, frozen=True, kw_only=True):
    title: str
    changes: str


class _Actor(Body, frozen=True, kw_only=True):
    words: list[Pattern]
    no_cure: Pattern
    instead: _Instead


class ActorWords(Body, frozen=True, kw_only=True):
    """actor_words.yaml: who ran the program, and which cures are none for them."""

    aihub: _Actor
    winml: _Actor
    app: _Actor
    shell: _Actor
    pc: _Actor
