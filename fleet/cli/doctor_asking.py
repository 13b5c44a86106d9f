"""Questions of the doctor on a terminal: an answer ranks the causes anew."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import typer

from fleet.cli import output
from fleet.model.diagnosis import Diagnosis, Question
from fleet.model.errors import InputError
from fleet.triage.asking import check_ids
from fleet.triage.knowledge import knowledge

_MOST = 4
Look = Callable[[Mapping[str, str]], Diagnosis]


def given(answers: Sequence[str] | None) -> dict[str, str]:
    """Parse `ID=yes`, `ID=no` or `ID=@FILE` of the command line.

    Raises InputError for another form, and for an ID that no question has.
    """
    found = {}
    for text in answers or ():
        key, equals, word = text.rpartition("=") if "=@" not in text else text.partition("=")
        if not equals or not key:
            raise InputError(
                f"--answer '{text}' does not have the form ID=yes, ID=no or ID=@FILE",
                hint="repeat the command with the ID that the question shows: --answer ID=yes",
            )
        found[key] = _content(word[1:]) if word.startswith("@") else word
    if found:
        check_ids(found, knowledge())
    return found


def _content(name: str) -> str:
    try:
        return Path(name).read_text("utf-8", "replace")
    except OSError as error:
        raise InputError(
            f"the file {name} of --answer cannot be read: {error.strerror or error}",
            hint="give the path of an existing file: --answer ID=@FILE",
        ) from error


def asked(look: Look, answers: dict[str, str], *, quiet: bool) -> Diagnosis:
    """The diagnosis after the questions that a person at the terminal answers."""
    found = look(answers)
    if quiet or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return found
    for _ in range(_MOST):
        question = next((question for question in found.questions if question.yes), None)
        if question is None:
            break
        answer = _ask(question)
        if not answer:
            break
        answers[question.id] = answer
        found = look(answers)
    return found


def _ask(question: Question) -> str:
    """yes, no, or "" for what nobody knows."""
    output.say(question.text)
    if question.command:
        output.say(f"  {question.command}")
    word = str(typer.prompt("yes, no, or Enter to skip", default="", show_default=False))
    return {"y": "yes", "yes": "yes", "n": "no", "no": "no"}.get(word.strip().lower(), "")
