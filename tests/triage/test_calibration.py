"""What the doctor says of its own answers, over first runs alone."""

from __future__ import annotations

import re

import pytest

from fleet.triage.triage import triage

from .firstrun import Run, answers, calibration, expected_error, figures, interval, pooled


def test_few_answers_of_first_runs_were_wrong_and_sure() -> None:
    sure = [right for said, right in pooled() if said >= 0.8]
    assert len(sure) >= 15
    assert sum(sure) >= 0.9 * len(sure)


def test_the_pooled_error_is_the_one_of_the_page() -> None:
    pairs = pooled()
    assert expected_error(pairs) <= 0.05
    for line in calibration(pairs)[1:]:
        said, right = (float(share) for share in re.findall(r"(?:said|right) ([\d.]+)", line))
        assert "holds" in line or said < right, f"more was said than was right: {line}"


def test_one_signature_alone_is_always_asked_about() -> None:
    found = triage("scp: write: No space left on device\n")
    assert found.causes[0].agreeing == 1
    assert found.questions


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    [(0, 10, 0.0, 0.259), (5, 10, 0.222, 0.778), (10, 10, 0.741, 1.0)],
)
def test_intervals_are_those_of_clopper_and_pearson(
    right: int, count: int, low: float, high: float
) -> None:
    assert interval(right, count) == pytest.approx((low, high), abs=0.001)


def run(log: str, **row: object) -> Run:
    return Run({"id": "x", "log": log, **row}, triage(log))


def test_the_figures_of_a_set() -> None:
    skel = "cannot open libQnnHtpV73Skel.so: no such file\n"
    runs = [
        run(skel, label="skel-not-found", accepted=[]),
        run(skel, label="stub-not-found", accepted=["skel-not-found"]),
        run(skel, label="disk-full", accepted=[]),
        run("Failed to create device: 14001\n", label="device-busy", decidable=False),
        run("hello\n", label="none"),
        run(skel, label="foreign"),
    ]
    assert [one.right for one in runs] == [True, True, False, False, True, False]
    assert runs[3].asked, "more of the log is asked for, and the log does not tell"
    assert len(answers(runs)) == 5
    text = "\n".join(figures(runs))
    assert "failing logs called healthy: 0" in text
    assert "top-1: 2 of 4" in text
    assert "false alarms: 1 of 2" in text
