"""Whose log is it? What is left of its causes in a text that is about something else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fleet.model.diagnosis import Ranked
from fleet.triage.reading import LogReading

_CAPPED = 0.25  # without a word of a deployment a cause is a guess
# What a converter can say, too.
_OF_A_MODEL = {"unsupported-op", "op-package", "model-format", "python-package"}
_OPPOSED = 0.1  # below even, where the log itself shows a build, or that the work was done
_BESIDE_SUCCESS = {"runtime", "bundle", "session"}  # layers that can be wrong where it was done


def in_context(ranked: tuple[Ranked, ...], reading: LogReading) -> tuple[Ranked, ...]:
    """The causes that the log can name: none in a document, a build, or a log of others.

    Where what comes first is a failure that any machine can have, and nothing says that it is of
    a Qualcomm device, none is named: it becomes a question.
    """
    if reading.of_people or reading.of_others or (reading.of_build and not reading.given):
        return ()
    if ranked and not reading.beside(ranked[0].cause.context):
        return ()
    ranked = tuple(guess for guess in ranked if reading.beside(guess.cause.context))
    if reading.of_build:
        ranked = _capped((guess for guess in ranked if guess.cause.id in _OF_A_MODEL), _CAPPED)
    elif reading.succeeded and ranked and ranked[0].cause.layer not in _BESIDE_SUCCESS:
        ranked = _capped(ranked, _OPPOSED)
    if reading.of_device:
        return tuple(guess for guess in ranked if any(map(reading.in_reach, _numbers(guess))))
    return _capped(ranked, _CAPPED)


def _capped(ranked: Iterable[Ranked], most: float) -> tuple[Ranked, ...]:
    return tuple(replace(cause, confidence=min(cause.confidence, most)) for cause in ranked)


def _numbers(one: Ranked) -> list[int]:
    """Of its lines; what an answer or a fact says has none."""
    return [evidence.line for evidence in one.evidence if evidence.source == "log"] or [1]
