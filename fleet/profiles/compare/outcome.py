"""The outcome of a comparison: the gates of `--fail-if`, and the errors that end a script."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.model.errors import GateError, NotComparableError
from fleet.profiles.compare.comparing import Comparison
from fleet.profiles.compare.conditions import APART
from fleet.profiles.compare.gates import Gate, GateOutcome, JudgedGate, judge_gates
from fleet.profiles.compare.writing import finding

AGAIN = "fleet ab -h (shows how to compare two playbooks, bundles or releases)"


def judged_gates(
    comparison: Comparison, asked: Sequence[Gate], *, strict: bool
) -> list[JudgedGate]:
    """Return the outcome of each gate. If `strict` refuses the comparison, no gate is judged."""
    return judge_gates(asked, comparison, _refusal(comparison) if strict else "")


def require(
    comparison: Comparison, judged: Sequence[JudgedGate], *, strict: bool, again: str = AGAIN
) -> None:
    """Raise GateError if B is worse, NotComparableError if fleet cannot decide.

    With `strict`, a difference between the conditions of A and B is refused first. Wrong answers of
    B raise GateError only with gates or `strict`.
    A tripped gate takes precedence over an unjudged one, because it is the more certain result.
    `again` is the command that measures A and B alternately.
    """
    refusal = _refusal(comparison) if strict else ""
    if refusal:
        raise NotComparableError(
            refusal,
            hint="measure A and B again under the same conditions; if you changed a condition "
            "on purpose, name it with --vary, such as --vary runtime",
        )
    apart = [finding for finding in comparison.findings if finding.what in APART]
    tripped = [result for result in judged if result.outcome is GateOutcome.TRIPPED]
    if tripped:
        raise GateError(
            f"B is worse than --fail-if allows: {_texts(tripped)}",
            hint="keep A; or allow a larger loss with --fail-if",
        )
    wrong = [f"{row.board}: {row.text}" for row in comparison.answers if row.worse]
    if wrong and (judged or strict):
        raise GateError(
            f"B gives wrong answers: {'; '.join(wrong)}",
            hint="keep A; fleet profiles compare --json (has each answer)",
        )
    unsure = [result for result in judged if result.outcome is GateOutcome.UNJUDGED]
    if unsure:
        raise NotComparableError(
            "fleet cannot decide --fail-if, because it has too few comparable runs: "
            f"{_texts(unsure)}",
            hint=again
            if apart
            else f"measure A and B with at least five `fleet run` commands each, or: {again}",
        )
    if apart:
        raise NotComparableError(
            f"no verdict, because A and B were not measured alternately: {finding(apart[0])}",
            hint=again,
        )


def _refusal(comparison: Comparison) -> str:
    if not comparison.rows:
        return "--strict: A and B have no device and no metric in common"
    what = ", ".join(dict.fromkeys(finding.what for finding in comparison.refused))
    text = f"--strict: some conditions of A and B differ or are unknown: {what}"
    return text if what else ""


def _texts(judged: Sequence[JudgedGate]) -> str:
    names = [", ".join(filter(None, (j.gate.text, j.board, j.metric))) for j in judged[:3]]
    texts = [f"{name}: {result.text}" for name, result in zip(names, judged, strict=False)]
    return "; ".join(texts) + (f" and {len(judged) - 3} more" if len(judged) > 3 else "")
