"""`fleet ab` as it is typed: what it refuses, what it shows, and its exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from fleet.cli import ab as cli
from fleet.cli.main import main
from fleet.engine.pool import DeviceResult
from fleet.engine.run.ab.journal import AbJournal, Asked, Pair
from fleet.engine.run.ab.measuring import (
    AbReport,
    Judged,
    check,
    check_first,
    differing,
    judged,
)
from fleet.engine.run.ab.sides import AbSide, not_measured, side_of
from fleet.engine.run.ab.verdict import settle, verdict
from fleet.model.errors import ConnectionLostError, FleetError, NotComparableError
from fleet.model.inventory import Host
from fleet.model.record import Measure
from fleet.profiles.compare.sequential import Answer, Decision, answer, failures
from fleet.profiles.runs import RunStore
from fleet.runtimes.store import RuntimeStore

from ..profiles.compare.made import metrics, record
from ..profiles.records import put

ROOT = Path(__file__).parents[2]


def fleet(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["fleet", "ab", *words])
    try:
        main()
    except SystemExit as left:
        return int(left.code or 0)
    return 0


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[AbJournal]:
    asked = Asked("a.yaml", "b.yaml", "", "lab.yaml", ("evk-01",), {"decode_tps": -0.05})
    made = AbJournal.begin(RunStore(tmp_path / "runs"), "ab1", asked)
    yield made
    made.close()


def measured(change: float, pairs: int, *, rounded: bool = False) -> DeviceResult[AbReport]:
    """One board; B against A, noise 2 %."""
    rng = np.random.default_rng(1)
    values = [10 * np.exp(0.02 * rng.standard_normal(2)) * (1, 1 + change) for _ in range(pairs)]
    if rounded:
        values = [np.rint(both) for both in values]
    found = answer([(both[0], both[1]) for both in values], -0.05, 1)
    row = Judged("decode_tps", -0.05, 10.0, 10 * (1 + change), found)
    return DeviceResult(Host("evk-01", "evk-01"), "ran", value=AbReport((row,), pairs))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("a",), "needs two playbooks, bundles or releases to compare (A and B), and an inventory"),
        (("a", "b", "-i", "lab.yaml", "--gate", "decode_tps<9"), "is not valid; write METRIC"),
        (("a", "b", "-i", "lab.yaml", "--gate", "decode_tps<+5%"), "is not valid; write METRIC"),
        (("a", "b", "-i", "lab.yaml", "--gate", "decode_tps<-100%"), "(below 100)"),
        (("a", "b", "-i", "lab.yaml", "--gate", "decode_tps>+5%"), "--gate 'decode_tps<-5%'"),
        (("a", "b", "-i", "lab.yaml", "--gate", "ttft_ms<-5%"), "--gate 'ttft_ms>+5%'"),
        (("a", "b", "-i", "lab.yaml", "--gate", "own_ms<-5%"), "so it passes every loss"),
        (("a", "b", "-i", "lab.yaml", "--gate", "wall<-5%"), "a lower wall is better"),
        (
            ("a", "b", "-i", "lab.yaml", "--gate", "decode_tps<-5%", "--gate", "decode_tps<-20%"),
            "keep the stricter gate: --gate 'decode_tps<-5%'",
        ),
        (("a", "b", "-i", "lab.yaml", "--gate", "decode_tps-5%"), "--gate 'decode_tps-5%', column"),
        (("a", "b", "-i", "lab.yaml", "--gate", "wal_ms>+5%"), "no earlier run has the metric"),
        (("--resume", "never"), "cannot resume the comparison 'never'"),
    ],
)
def test_what_it_cannot_do_is_said_before_a_board_is_asked(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab.yaml").write_text("all: {hosts: {evk-01: {host: 127.0.0.1}}}\n")
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
    earlier = record(
        metrics=metrics(10.0, others={"wall_ms": Measure(3.0, "ms"), "wall": Measure(3.0, "ms")})
    )
    put(tmp_path / "home" / "runs", structs.replace(earlier, name="a"))
    (tmp_path / "a").write_text("name: a\nbundle: .\nrun: {prompt: a}\n")
    assert fleet(monkeypatch, *words, "--output", str(tmp_path / "runs")) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*")), "nothing is begun"


def test_another_gate_than_that_of_the_comparison_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It went on with the gate that it had, and said nothing."""
    root = str(tmp_path)
    asked = Asked("a.yaml", "b.yaml", "", "lab.yaml", ("evk-01",), {"decode_tps": -0.05})
    AbJournal.begin(RunStore(tmp_path), "ab1", asked).close()
    monkeypatch.setattr(cli, "_measured", lambda *_, **__: [measured(0.0, 40)])
    assert fleet(monkeypatch, "--resume", "ab1", "--output", root, "--gate", "decode_tps<-5%") == 0
    assert fleet(monkeypatch, "--resume", "ab1", "--output", root, "--gate", "ttft_ms>+9%") == 2
    said = capsys.readouterr().err
    assert "has --gate 'decode_tps<-5%', not --gate 'ttft_ms>+9%'" in said
    assert "fleet ab --resume ab1 (continues with" in said
    assert fleet(monkeypatch, "--resume", "ab1", "--output", root, "-l", "evk-01") == 2
    assert "ab1 has the devices evk-01; they cannot be changed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "row"),
    [
        (0.2, "1.21 × faster | 1.18 to 1.23 | pass"),
        (0.0, "1.01 × faster | 0.98 to 1.02 | pass"),
        (-0.2, "1.24 × slower | 1.22 to 1.28 | fail"),
    ],
)
def test_the_ratio_comes_first_and_then_the_answer(
    change: float, row: str, journal: AbJournal, capsys: pytest.CaptureFixture[str]
) -> None:
    found = verdict(journal, [measured(change, 40)])
    cli.show(journal, found, as_json=False)
    text = " ".join(capsys.readouterr().out.splitlines()[-1].split())
    assert f"evk-01 | decode_tps | {row} |" in text
    ratio, interval, answer = row.split(" | ")
    cli.show(journal, found, as_json=True)
    line = json.loads(capsys.readouterr().out)
    assert (line["answer"], line["rows"][0]["text"]) == (answer, f"B is {ratio}, 95 % {interval}")


@pytest.mark.parametrize(
    ("metric", "limit", "change", "text"),
    [
        ("decode_tps", -0.05, (0.9, 1.6, 3.8), "B is 2.60 × faster, 95 % 1.90 to 4.80"),
        ("decode_tps", -0.05, (-0.6, -0.5, 0.25), "B is 2.00 × slower, 95 % 0.80 to 2.50"),
        ("ttft_ms", 0.05, (-0.75, -0.5, -0.2), "B is 2.00 × faster, 95 % 1.25 to 4.00"),
        ("ttft_ms", 0.05, (0.25, 1.0, 3.0), "B is 2.00 × slower, 95 % 1.25 to 4.00"),
        ("ttft_ms", 0.05, (-0.2, 0.001, 0.25), "B is as fast, 95 % 0.80 to 1.25"),
        ("accuracy", -0.05, (0.25, 1.0, 3.0), "B is 2.00 × better, 95 % 1.25 to 4.00"),
        ("accuracy", -0.05, (-0.2, 0.0, 0.25), "B is as good, 95 % 0.80 to 1.25"),
        (
            "decode_tps",
            -0.05,
            (None, 1.0, None),
            "B is 2.00 × faster; too few pairs for an interval",
        ),
        ("decode_tps", -0.05, (None, None, None), "no pairs yet"),
    ],
)
def test_the_ratio_is_above_1_in_the_direction_that_it_names(
    metric: str, limit: float, change: tuple[float | None, ...], text: str
) -> None:
    low, mid, high = change
    decision = Decision(8, Answer.UNDECIDED, low, mid, high)
    assert Judged(metric, limit, None, None, decision).text == text


@pytest.mark.parametrize(("pairs", "share"), [(8, "31%"), (40, "7%")])
def test_how_often_b_can_fail_unseen_is_said(
    pairs: int, share: str, journal: AbJournal, capsys: pytest.CaptureFixture[str]
) -> None:
    """1 - 0.05 ** (1 / 8) is 0.312, and 1 - 0.05 ** (1 / 40) is 0.072."""
    cli.show(journal, verdict(journal, [measured(0, pairs)]), as_json=False)
    told = " ".join(capsys.readouterr().err.split())
    assert f"evk-01: 0 of {pairs} runs of B failed; a B that fails in up to {share} of its" in told


@pytest.mark.parametrize(("pairs", "decided"), [(40, True), (3, False)])
def test_a_resume_that_measures_is_not_said_to_measure_nothing(
    pairs: int, decided: bool, journal: AbJournal, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.show(journal, verdict(journal, [measured(0.0, pairs)]), as_json=False)
    assert ("(measures nothing): fleet ab --resume ab1" in capsys.readouterr().err) is decided


@pytest.mark.parametrize(
    "asked",
    [
        (-0.15, 40, 1, "keep A"),
        (0.0, 40, 0, ""),
        (-0.045, 8, 4, "fleet ab --resume ab1"),
        (0.0, 3, 4, "fleet ab --resume ab1"),
    ],
)
def test_exit_codes(
    journal: AbJournal, asked: tuple[float, int, int, str], capsys: pytest.CaptureFixture[str]
) -> None:
    change, pairs, code, hint = asked
    results = [measured(change, pairs)]
    cli.show(journal, verdict(journal, results), as_json=True)
    (line,) = capsys.readouterr().out.splitlines()  # one document a line, as the events before
    assert json.loads(line)["event"] == "AbDone"
    (row,) = json.loads(line)["rows"]
    assert row["decision"]["answer"] == {0: "pass", 1: "fail", 4: "undecided"}[code]
    assert (row["device"], row["metric"], row["emulated"]) == ("evk-01", "decode_tps", False)
    if code == 0:
        cli.end(journal, verdict(journal, results), results)
        return
    with pytest.raises(FleetError) as error:
        cli.end(journal, verdict(journal, results), results)
    assert error.value.exit_code == code
    assert "evk-01 decode_tps" in error.value.message
    assert hint in error.value.hint


@pytest.mark.parametrize("gates", [{"decode_tps": -0.05}, {}])
def test_a_board_without_pairs_is_not_fine(
    gates: dict[str, float], journal: AbJournal, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0, and the row of the other board alone, before."""
    journal.asked = structs.replace(journal.asked, limits=gates)
    empty = DeviceResult(
        Host("evk-02", "evk-02"), "ran", value=AbReport(tuple(judged(journal, [])))
    )
    for results in ([empty], [measured(0.0, 40), empty]):
        cli.show(journal, verdict(journal, results), as_json=False)
        assert "evk-02 | decode_tps | - | - | undecided | - | - | 0 |" in " ".join(
            capsys.readouterr().out.split()
        )
        with pytest.raises(NotComparableError, match="evk-02 decode_tps") as error:
            cli.end(journal, verdict(journal, results), results)
        assert error.value.exit_code == 4


def test_a_board_that_was_not_reached_leaves_it_undecided(journal: AbJournal) -> None:
    host = Host("evk-02", "evk-02")
    gone = DeviceResult[AbReport](host, "unreachable", error=ConnectionLostError("the link broke"))
    assert verdict(journal, [measured(0.0, 40)]).answer is Answer.PASS
    assert verdict(journal, [measured(0.0, 40), gone]).answer is Answer.UNDECIDED
    assert verdict(journal, [measured(-0.15, 40), gone]).answer is Answer.FAIL


@pytest.mark.parametrize(
    ("failed", "code", "word"), [(7, 1, "fail"), (1, 4, "undecided"), (0, 0, "")]
)
def test_failed_runs_of_b_are_shown_and_never_fine(
    journal: AbJournal, failed: int, code: int, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = measured(0.0, 40)
    tries = [("", "it ended with status 1")] * failed + [("", "")] * 8
    result.value = replace(result.answer, failures=failures(tries, 1))
    cli.show(journal, verdict(journal, [result]), as_json=True)
    (line,) = capsys.readouterr().out.splitlines()
    assert [one["b"] for one in json.loads(line)["failures"]] == [failed] * bool(failed)
    cli.show(journal, verdict(journal, [result]), as_json=False)
    said = capsys.readouterr()
    row = (
        f"evk-01 | failed runs | - | - | {word} | 0 of {8 + failed} | {failed} of {8 + failed} | 40"
    )
    assert (row in " ".join(said.out.split())) == bool(failed)
    text = f"B failed {failed} of {8 + failed} runs, A 0 of {8 + failed} (it ended with status 1)"
    assert (text in said.err) == bool(failed)
    if not code:
        cli.end(journal, verdict(journal, [result]), [result])
        return
    with pytest.raises(FleetError) as error:
        cli.end(journal, verdict(journal, [result]), [result])
    assert error.value.exit_code == code
    assert text in error.value.message


def test_conditions_that_differ_are_named(
    journal: AbJournal, capsys: pytest.CaptureFixture[str]
) -> None:
    """B generated nothing, and only `profiles compare` said so, before."""
    pairs = [
        Pair(
            n, record(n, metrics=metrics(10.0)), record(n, metrics=metrics(10, generated_tokens=0))
        )
        for n in range(8)
    ]
    result = measured(0.0, 8)
    result.value = replace(result.answer, conditions=tuple(differing(pairs)))
    cli.show(journal, verdict(journal, [result]), as_json=False)
    said = capsys.readouterr().err
    assert "evk-01: conditions differ: generated tokens: A 31, B 0" in said
    same = [Pair(n, record(n), record(n, prompt_sha256="cd" * 32)) for n in range(8)]
    assert differing(same) == [], "another prompt is what is compared"


def test_no_hint_proposes_a_gate_that_passes_every_loss(tmp_path: Path) -> None:
    """A rise of TTFT was asked of a program that has rates only: a rise of the rate, before."""
    (tmp_path / "p.yaml").write_text(f"name: p\nbundle: {ROOT / 'assets/tiny-genie'}\n"
                                     "run: {prompt: a}\n")  # fmt: skip
    side = side_of(str(tmp_path / "p.yaml"), "", RuntimeStore(tmp_path), lambda _: None)
    with pytest.raises(FleetError) as error:
        check("A", side, record(metrics=metrics(10.0)), {"ttft_ms": 0.05})
    assert "'decode_tps<-5%'" in error.value.hint or "tokens" in error.value.hint
    with pytest.raises(FleetError, match="a lower wall is better"):
        check("A", side, record(metrics=metrics(9, others={"wall": Measure(3, "ms")})),
              {"wall": -0.05})  # fmt: skip
    with pytest.raises(FleetError, match="measured decode_tps 0"):
        check("B", side, record(metrics=metrics(0.0)), {"decode_tps": -0.05})
    pair = Pair(0, record(metrics=metrics(10.0)), record(metrics=metrics(None)))
    with pytest.raises(FleetError, match=r"no run of B .* has the metric 'decode_tps'"):
        check_first({"decode_tps": -0.03}, side, pair)
    runs = [
        record(metrics=metrics(10.0, others={"wall": Measure(3, unit)})) for unit in ("ms", "s")
    ]
    with pytest.raises(FleetError, match="A measures wall in ms, but B in s"):
        check_first({"wall": 0.05}, side, Pair(0, *runs))


def test_who_stops_it_or_loses_the_board_reads_how_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Asked("a.yaml", "b.yaml", "", "lab.yaml", ("evk-01",), {"decode_tps": -0.05})
    AbJournal.begin(RunStore(tmp_path), "ab1", asked).close()
    resume = f"fleet ab --resume ab1 --output {tmp_path}"

    def stopped(*_: object, **__: object) -> list[DeviceResult[Any]]:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_measured", stopped)
    assert fleet(monkeypatch, "--resume", "ab1", "--output", str(tmp_path)) == 130
    assert f"ab1 keeps its 0 pairs; to continue: {resume}" in capsys.readouterr().err

    def lost(*_: object, **__: object) -> list[DeviceResult[Any]]:
        result = measured(0.0, 3)
        result.outcome, result.error = "unreachable", ConnectionLostError("the link broke")
        return [result]

    monkeypatch.setattr(cli, "_measured", lost)
    assert fleet(monkeypatch, "--resume", "ab1", "--output", str(tmp_path)) == 3
    said = " ".join(capsys.readouterr().err.split())
    assert f"then {resume} (continues after the last whole pair)" in said
    assert "same command" not in said


def test_what_all_boards_left_open_is_judged_with_the_chance_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 boards: 19 are fine, one by itself would be, and so is; its interval ends at the limit."""
    noise = np.random.default_rng(1).permutation(np.linspace(-0.075, 0.075, 40))
    gaps = {f"evk-{n:02}": noise * (n == 0) for n in range(20)}
    values = {
        host: [(10.0123, 10.0123 * (1 - 0.024 * (host == "evk-00") + gap)) for gap in found]
        for host, found in gaps.items()
    }
    asked = Asked("a", "b", "", "lab.yaml", tuple(values), {"decode_tps": -0.05})
    journal = AbJournal.begin(RunStore(tmp_path), "ab1", asked)
    runs = {
        host: [
            Pair(n, *(record(n, host, metrics=metrics(tps)) for tps in both))
            for n, both in enumerate(pairs)
        ]
        for host, pairs in values.items()
    }
    monkeypatch.setattr(journal, "pairs", runs.get)
    results = [
        DeviceResult(Host(host, host), "ran", value=AbReport(tuple(judged(journal, runs[host]))))
        for host in values
    ]
    assert [item.decision.answer for item in results[0].answer.answers] == [Answer.UNDECIDED]
    settle(journal, results)
    (item,) = results[0].answer.answers
    assert (item.decision.answer, item.decision.low) == (Answer.PASS, -0.05)
    cli.end(journal, verdict(journal, results), results)
    journal.close()


def test_a_line_over_boards_beside_those_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight boards, each undecided after eight pairs; together they are fine, or worse."""
    names = [f"evk-{n}" for n in range(9)]
    asked = Asked("a", "b", "", "lab.yaml", tuple(names), {"decode_tps": -0.02})
    journal = AbJournal.begin(RunStore(tmp_path), "ab1", asked)
    for loss, answer_over in ((0.0, "pass"), (0.04, "fail")):
        rng, runs = np.random.default_rng(2), {}
        for name in names:
            count = 8 if name != "evk-8" else 3
            both = 10 * np.exp(0.02 * rng.standard_normal((count, 2))) * (1, 1 - loss)
            runs[name] = [
                Pair(n, *(record(n, name, metrics=metrics(tps)) for tps in one))
                for n, one in enumerate(both.tolist())
            ]
        monkeypatch.setattr(journal, "pairs", runs.get)
        results = [
            DeviceResult(Host(name, name), "ran",
                         value=AbReport(tuple(judged(journal, found)), len(found)))
            for name, found in runs.items()
        ]  # fmt: skip
        assert {item.decision.answer for one in results for item in one.answer.answers} == {
            Answer.UNDECIDED
        }
        cli.show(journal, verdict(journal, results), as_json=True)
        over = json.loads(capsys.readouterr().out)["over"]
        assert over["devices"] == names[:8]
        assert [row["decision"]["answer"] for row in over["rows"]] == [answer_over]
        cli.show(journal, verdict(journal, results), as_json=False)
        said = capsys.readouterr()
        assert "all 8  | decode_tps" in said.out
        assert "without evk-8 (too few pairs)" in said.err
        with pytest.raises(FleetError) as error:
            cli.end(journal, verdict(journal, results), results)
        assert error.value.exit_code == {"pass": 4, "fail": 1}[answer_over]
        assert ("all 8 devices together" in error.value.message) == (answer_over == "fail")
    journal.close()


def test_what_no_pair_follows_is_said(tmp_path: Path) -> None:
    bundle = ROOT / "assets" / "tiny-genie"

    def side(name: str, run: str) -> AbSide:
        path = tmp_path / f"{name}.yaml"
        path.write_text(f"name: {name}\nbundle: {bundle}\nrun: {{prompt: a, {run}}}\n")
        return side_of(str(path), "", RuntimeStore(tmp_path), lambda _: None, offline=True)

    a, b = side("a", "warmups: 1, repeats: 5"), side("b", "warmups: 3, repeats: 5")
    ignored, equal = not_measured([a, b])
    assert "set warmups differently, but" in ignored
    assert "so fleet expects no difference" in equal
    assert not not_measured([a, side("c", "warmups: 1, repeats: 5, max_tokens: 9")])


def test_after_the_last_look_nothing_says_measure_on(
    journal: AbJournal, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [measured(0.0, 40, rounded=True)]
    cli.show(journal, verdict(journal, results), as_json=False)
    said = capsys.readouterr()
    assert "rounds its values to 1" in said.out + said.err
    with pytest.raises(FleetError, match="needs more runs") as error:
        cli.end(journal, verdict(journal, results), results)
    assert "rounds less, such as a time: --gate 'decode_ms>+5%'" in error.value.hint


def test_the_gate_is_named_and_what_ended_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also the one that nobody typed; `pass` is explained only if a row passes."""
    asked = Asked("a.yaml", "b.yaml", "", "lab.yaml", ("evk-01",), {})
    journal = AbJournal.begin(RunStore(tmp_path / "runs"), "ab2", asked)
    journal.close()
    for pairs, fine in ((8, False), (40, True)):
        results = [measured(-0.045 * (not fine), pairs)]
        results[0].value = replace(results[0].answer, in_time=fine, pairs=pairs)
        cli.show(journal, verdict(journal, results), "3m", as_json=False)
        said = capsys.readouterr()
        assert "A a.yaml, B b.yaml" in said.out
        assert "gate: decode_tps<-5% (default; change it with --gate)" in said.err
        assert ("`pass`: B stays within it" in said.err) == fine
        ended = "evk-01: stopped, because the budget of 3m is over after 8 pairs"
        assert (ended in said.err) == (not fine)


def test_a_change_that_is_not_that_of_the_medians_says_why(
    journal: AbJournal, capsys: pytest.CaptureFixture[str]
) -> None:
    for b, differs in ((10.0, False), (9.5, True)):
        (result,) = [measured(0.0, 8)]
        rows = [
            replace(row, b=b, decision=replace(row.decision, mid=0.0))
            for row in result.answer.answers
        ]
        result.value = replace(result.answer, answers=tuple(rows))
        cli.show(journal, verdict(journal, [result]), as_json=False)
        assert ("the change is the median over all pairs" in capsys.readouterr().err) == differs
