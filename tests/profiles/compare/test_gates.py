"""Gates: what they say, where they are wrong, and that nothing passes unmeasured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from fleet.model.errors import InputError
from fleet.model.record import Record
from fleet.profiles.compare.comparing import compare
from fleet.profiles.compare.gates import Gate, GateOutcome, judge_gates, parse
from fleet.profiles.compare.groups import group
from fleet.profiles.compare.verdict import Verdict

from .made import metrics, newer, noisy, separate


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("decode_tps<-5%", Gate("", "decode_tps", True, -0.05, "%", True)),
        (" ttft_ms > +2.5 % ", Gate("", "ttft_ms", False, 0.025, "%", True)),
        ("ttft_ms>+20ms", Gate("", "ttft_ms", False, 20, "ms", True)),
        ("init_ms>4.5s", Gate("", "init_ms", False, 4.5, "s", False)),
        ("decode_tps<9tok/s", Gate("", "decode_tps", True, 9, "tok/s", False)),
        ("decode_tps<9", Gate("", "decode_tps", True, 9, "", False)),
        ("slower", Gate("", "", word=Verdict.SLOWER)),
        ("decode_tps slower", Gate("", "decode_tps", word=Verdict.SLOWER)),
    ],
)
def test_grammar(text: str, gate: Gate) -> None:
    assert parse(text) == replace(gate, text=text)


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("", 1, "a metric or a verdict"),
        ("<-5%", 1, "a metric or a verdict"),
        ("decode_tps", 11, "< or >"),
        ("decode_tps=-5%", 11, "< or >"),
        ("decode_tps<", 12, "a number"),
        ("decode_tps<five", 12, "a number"),
        ("decode_tps<=-5%", 12, "a number"),
        ("decode_tps<-5% x", 15, "unexpected text"),
        ("ttft_ms>10%", 9, "+10% or -10%"),
        ("slow", 5, "< or >"),
        ("5 slower", 1, "a metric"),
    ],
)
def test_what_is_wrong_is_named_with_its_column(text: str, column: int, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert f"column {column}:" in caught.value.message
    assert said in caught.value.message
    assert "decode_tps<-5%" in caught.value.hint


def judged(text: str, a: list[Record], b: list[Record]) -> list[tuple[GateOutcome, str]]:
    found = compare(
        group("A", a), group("B", b), [parse(text).metric] if parse(text).metric else []
    )
    return [(one.outcome, one.text) for one in judge_gates([parse(text)], found)]


def outcome(text: str, middle: float, count: int = 12, noise: float = 0.02) -> GateOutcome:
    a = separate(noisy(10, count, 1, noise))
    b = newer(separate(noisy(middle, count, 2, noise)))
    (found,) = judged(text, a, b)
    return found[0]


@pytest.mark.parametrize(
    ("text", "middle", "wanted"),
    [
        ("decode_tps<-5%", 9.0, GateOutcome.TRIPPED),
        ("decode_tps<-5%", 9.8, GateOutcome.PASSED),
        ("decode_tps<-5%", 11.0, GateOutcome.PASSED),
        ("decode_tps>+5%", 11.0, GateOutcome.TRIPPED),
        ("decode_tps<-0.5tok/s", 9.0, GateOutcome.TRIPPED),
        ("decode_tps<-2tok/s", 9.0, GateOutcome.PASSED),
        ("decode_tps<9.5", 9.0, GateOutcome.TRIPPED),
        ("decode_tps<9.5tok/s", 10.5, GateOutcome.PASSED),
        ("decode_tps<20ms", 9.0, GateOutcome.UNJUDGED),
        ("slower", 9.0, GateOutcome.TRIPPED),
        ("slower", 11.0, GateOutcome.PASSED),
        ("decode_tps faster", 11.0, GateOutcome.TRIPPED),
        ("prompt_tps<-5%", 9.0, GateOutcome.UNJUDGED),
    ],
)
def test_outcomes(text: str, middle: float, wanted: GateOutcome) -> None:
    assert outcome(text, middle) is wanted


def test_too_few_or_too_noisy_is_not_judged() -> None:
    assert outcome("decode_tps<-5%", 5.0, count=4) is GateOutcome.UNJUDGED
    assert outcome("decode_tps<9.5", 9.0, count=4) is GateOutcome.UNJUDGED
    assert outcome("slower", 5.0, count=3) is GateOutcome.UNJUDGED
    assert outcome("decode_tps<-5%", 9.0, count=5, noise=0.2) in {
        GateOutcome.UNJUDGED,
        GateOutcome.PASSED,
    }
    noisy_b = newer(separate([8.0, 12, 7, 9, 8.5, 11]))
    assert judged("decode_tps<-5%", separate([10.0, 13, 9, 8, 12, 9]), noisy_b)[0][0] is (
        GateOutcome.UNJUDGED
    )


def test_nothing_passes_unmeasured() -> None:
    a = separate(noisy(10, 12, 1))
    bad = [structs.replace(one, problems=("cpu-fallback: x",)) for one in newer(a)]
    lab = [structs.replace(one, emulated=True) for one in newer(a)]
    gone = [structs.replace(one, metrics=metrics(None)) for one in newer(a)]
    for b in (bad, lab, gone, []):
        for text in ("decode_tps<-5%", "slower", "faster"):
            found = judged(text, a, b)
            assert found, text
            assert {one for one, _ in found} == {GateOutcome.UNJUDGED}, (text, b[:1])


def test_a_board_that_is_gone_is_not_passed_over() -> None:
    a = separate(noisy(10, 12, 1)) + separate(noisy(10, 12, 2), host="evk-02")
    b = newer(separate(noisy(10, 12, 3)))
    assert (GateOutcome.UNJUDGED, "the metric was measured in A, but not in B") in judged(
        "decode_tps<-5%", a, b
    )


def test_where_strict_refuses_nothing_is_judged() -> None:
    a = separate(noisy(10, 12, 1))
    found = compare(group("A", a), group("B", newer(separate(noisy(5, 12, 2)))))
    (one,) = judge_gates([parse("slower")], found, "other weather")
    assert (one.outcome, one.text) == (GateOutcome.UNJUDGED, "other weather")


def test_seconds_fit_a_metric_in_milliseconds() -> None:
    a = [structs.replace(r, metrics=metrics(10, init_ms=v)) for r, v in zip(
        separate([10.0] * 12), noisy(4060, 12, 1), strict=True)]  # fmt: skip
    b = [structs.replace(r, metrics=metrics(10, init_ms=v)) for r, v in zip(
        newer(a), noisy(5200, 12, 2), strict=True)]  # fmt: skip
    assert judged("init_ms>4.5s", a, b)[0][0] is GateOutcome.TRIPPED
    assert judged("init_ms>+1s", a, b)[0][0] is GateOutcome.TRIPPED
    assert judged("init_ms>+2s", a, b)[0][0] is GateOutcome.PASSED
