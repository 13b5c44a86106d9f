"""Triage of a log: the first causal line decides, not the last one."""

from __future__ import annotations

from pathlib import Path

from fleet.model.diagnosis import HEALTHY, PROBLEM, UNRECOGNISED, Diagnosis, Evidence, Ranked
from fleet.triage.knowledge import Known, knowledge
from fleet.triage.ranking import Witness, rank
from fleet.triage.text import Line, lines_of

MAX_LINES = 200_000  # distinct lines that are looked at; a log repeats itself long before
_PER_SIGNATURE = 3  # lines of evidence that are kept for each


def triage(
    text: str, target: str = "log", *, platform: str = "", causes: Path | None = None
) -> Diagnosis:
    """The causes that a log shows, most likely first; none where nothing in it is known.

    `platform` (linux, android, windows) is taken from the log where it is not given. Never
    raises for what is in the log.
    """
    known = knowledge(causes)
    lines = lines_of(text)
    seen = platform or platform_of(lines, known)
    ranked = rank(witnesses(lines, known), seen, known=known.causes)
    verdict = verdict_of(ranked) if ranked else _without_cause(lines, known)
    return Diagnosis(
        target=target,
        verdict=verdict,
        causes=ranked,
        notes=_notes(lines, ranked, verdict),
    )


def _without_cause(lines: list[Line], known: Known) -> str:
    """Healthy only where the log says that the work was done, and nothing speaks against it."""
    done = False
    for text in dict.fromkeys(line.text for line in lines):
        if known.failure_words.match(text) and not known.benign.match(text):
            return UNRECOGNISED
        done = done or bool(known.success.match(text))
    return HEALTHY if done else UNRECOGNISED


def verdict_of(ranked: tuple[Ranked, ...]) -> str:
    """A problem where a cause is an error, advice where none is."""
    return PROBLEM if ranked[0].cause.severity == "error" else "advice"


def witnesses(lines: list[Line], known: Known, source: str = "log") -> list[Witness]:
    """What the lines say for each cause, in the order of the lines."""
    hits: dict[int, list[Line]] = {}
    causal: dict[int, int] = {}
    seen: set[str] = set()
    for line in lines:
        if line.text in seen or len(seen) > MAX_LINES:
            continue
        seen.add(line.text)
        found = known.matcher.match(line.text)
        if not found or known.benign.match(line.text):
            continue
        for index in found:
            hits.setdefault(index, []).append(line)
            _, signature, part = known.owners[index]
            if part == "match" and not signature.summary:
                causal.setdefault(line.number, len(causal))
    return [one for index in hits for one in _heard(index, hits, causal, known, source)]


def _heard(
    index: int, hits: dict[int, list[Line]], causal: dict[int, int], known: Known, source: str
) -> list[Witness]:
    cause, signature, part = known.owners[index]
    if part != "match":
        return []
    # The other parts of a signature stand right behind its match.
    for beside in range(index + 1, min(index + 3, len(known.owners))):
        owner, other, kind = known.owners[beside]
        if owner is cause and other is signature and kind == "unless" and beside in hits:
            return []
        if owner is cause and other is signature and kind == "needs" and beside not in hits:
            return []
    lines = hits[index]
    first = causal.get(lines[0].number, len(causal))
    return [
        Witness(
            cause,
            signature.weight if number == 0 else 0.0,
            Evidence(source, line.text, line.number),
            first,
            signature.summary,
        )
        for number, line in enumerate(lines[:_PER_SIGNATURE])
    ]


def platform_of(lines: list[Line], known: Known) -> str:
    """What the words of the log show; "" when they show nothing or several."""
    votes = dict.fromkeys((name for name, _ in known.platforms), 0)
    for line in lines[:MAX_LINES]:
        for name, matcher in known.platforms:
            votes[name] += bool(matcher.match(line.text))
    best = max(votes, key=lambda name: votes[name])
    others = sum(count for name, count in votes.items() if name != best)
    return best if votes[best] > 2 * others else ""


_LOUDER = "the log level up (genie-t2t-run --log verbose, ORT log severity 0, adb logcat)"


def _notes(lines: list[Line], ranked: tuple[Ranked, ...], verdict: str) -> tuple[str, ...]:
    if not lines:
        return ("the log is empty",)
    if verdict == HEALTHY:
        return ("it says that its work was done, and no line of it is a sign of a failure",)
    if not ranked:
        text = (
            "nothing in it is known, neither of a failure nor of a success: that says nothing of "
            f"the device. Run it again with {_LOUDER} and paste all of it"
        )
        return (text,)
    if ranked[0].summary:
        text = (
            "only the last line of the chain is here, which many causes share: run it again with "
            f"{_LOUDER} and paste everything before it"
        )
        return (text,)
    return ()
