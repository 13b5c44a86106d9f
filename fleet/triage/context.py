"""Whose log is it? What is left of its causes in a text that is about something else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fleet.model.diagnosis import Ranked
from fleet.triage.reading import LogReading

_CAPPED = 0.45  # without a word of a deployment a cause is a guess
_OWN = 0.75  # from here on the line is the NPU's, whatever words are beside it
_FAR = 0.3  # in a long log, away from every word of a deployment
# Layers of which a build or a converter on a workstation can tell; and what it says of a model.
_OF_A_BUILD = {"host", "link", "os", "library"}
_OF_A_MODEL = {
    "unsupported-op", "op-package", "model-format", "input-mismatch", "soc-unknown",
    "tool-limitation",
}  # fmt: skip


def in_context(ranked: tuple[Ranked, ...], reading: LogReading) -> tuple[Ranked, ...]:
    """The causes that the log can name: none in a document or a log of others.

    A failure that any machine can have, in a log in which nothing says that it is of a Qualcomm
    device, and one of a build keep a low confidence.
    """
    if reading.of_people or reading.of_others:
        return ()
    if reading.of_build:
        kept = [
            guess
            for guess in ranked
            if reading.given or guess.cause.layer in _OF_A_BUILD or guess.cause.id in _OF_A_MODEL
        ]
        return _capped(kept, _CAPPED)
    ranked = tuple(
        guess if reading.beside(guess.cause.context) else _lowered(guess, _CAPPED)
        for guess in ranked
    )
    if reading.of_device:
        return tuple(
            guess if any(map(reading.in_reach, _numbers(guess))) else _lowered(guess, _FAR)
            for guess in ranked
        )
    return tuple(
        guess if guess.confidence >= _OWN and not guess.cause.context else _lowered(guess, _CAPPED)
        for guess in ranked
    )


def _capped(ranked: Iterable[Ranked], most: float) -> tuple[Ranked, ...]:
    return tuple(_lowered(cause, most) for cause in ranked)


def _lowered(cause: Ranked, most: float) -> Ranked:
    return replace(cause, confidence=min(cause.confidence, most))


def _numbers(one: Ranked) -> list[int]:
    """Of its lines; what an answer or a fact says has none."""
    return [evidence.line for evidence in one.evidence if evidence.source == "log"] or [1]
