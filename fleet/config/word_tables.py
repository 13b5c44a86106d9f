"""The doctor's tables of words: what a log is about, what speaks of success, and what it says."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from fleet.config.fields import Strict, wrong


def _pattern(text: str) -> str:
    """RE2 belongs to the doctor; what Python's `re` knows too, without look-around, RE2 knows."""
    try:
        everywhere = re.compile(text).search("") is not None
    except re.error as error:
        raise wrong(f"'{text}' is not a valid regular expression: {error}", _SYNTAX) from error
    if _LOOKS.search(text):
        raise wrong(f"'{text}' uses syntax that RE2 does not have", _SYNTAX)
    if everywhere:
        raise wrong(f"'{text}' matches every line", "match at least one character")
    return text


_LOOKS = re.compile(r"(?<!\\)\((\?<?[=!]|\?P=)|(?<!\\)\\[1-9]")
_SYNTAX = "correct the expression; RE2 syntax has no look-around and no back references"
Pattern = Annotated[str, AfterValidator(_pattern)]


class _Benign(Strict):
    match: Pattern
    source: str


class BenignLines(Strict):
    """benign.yaml: lines that look like a failure and are none."""

    patterns: list[_Benign]


class _Succeeded(_Benign):
    needs: Pattern = ""


class Success(Strict):
    """success.yaml: lines by which a program says that its work was done, and doubts of it."""

    patterns: list[_Succeeded]
    doubts: list[Pattern]
    failure_words: list[Pattern]


class ContextWords(Strict):
    """context_words.yaml: what a log is about."""

    npu: list[Pattern]
    chip: list[Pattern]
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


class _Step(Strict):
    id: str
    when: str
    text: str
    command: str = ""


class NextSteps(Strict):
    """next_steps.yaml: what to do where nothing is recognised."""

    steps: list[_Step]


class _Sentence(Strict):
    match: str
    says: str


class _Kind(Strict):
    id: str
    match: Pattern


class _Unsure(Strict):
    subjects: list[str]
    symptoms: list[str]


class Families(Strict):
    """families.yaml: what a line is about, and what is wrong with it."""

    unsure: _Unsure
    subjects: list[_Kind]
    symptoms: list[_Kind]
    table: dict[str, dict[str, str]]


class Sentences(Strict):
    """sentences.yaml: what common lines say that are no cause of their own."""

    sentences: list[_Sentence]


class PlatformWords(Strict):
    """platform_words.yaml: by which words a log is of a platform."""

    android: list[Pattern]
    windows: list[Pattern]
    linux: list[Pattern]
