"""`fleet ab` on a board behind a real sshd: two releases, one slowed, or two that are equal."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from pathlib import Path

import pytest
from msgspec import structs
from msgspec.structs import replace

from fleet.config.playbook import load_playbook
from fleet.engine.pool import DeviceResult, on_every_device
from fleet.engine.run.ab.journal import AbJournal, Asked
from fleet.engine.run.ab.measuring import (
    AbReport,
    check,
    measure,
    not_valid,
    progress,
)
from fleet.engine.run.ab.sides import side_of
from fleet.model.deadline import Deadline
from fleet.model.errors import DeviceError, InputError
from fleet.model.events import StepStarted, Warned
from fleet.profiles.compare.sequential import Answer, drawn
from fleet.profiles.stats.trend import steady
from fleet.runtimes.store import RuntimeStore
from tests.runners.kits import gguf

from ...profiles.compare.made import record
from ..conftest import Bench

# A rate of 10, by so much noise; it says what it is, and takes the time that a process takes.
LLAMA = """#!/bin/sh
echo "stand-in for llama-bench" >&2
awk -v seed="$(($(od -An -N4 -tu4 /dev/urandom) % 2147483647))" -v rate={rate} 'BEGIN {{
  srand(seed); noise = 0
  for (n = 0; n < 12; n++) noise += rand()
  rate *= 1 + 0.01 * (noise - 6)
  print "[{{\\"devices\\": \\"HTP0\\", \\"backends\\": \\"HTP\\", \\"n_prompt\\": 0,"
  printf " \\"n_gen\\": 4, \\"avg_ts\\": %f}}]\\n", rate
}}'
"""
PLAYBOOK = """
name: llama
bundle: {path: bundle, kind: llama.cpp}
run: {program: llama-bench, max_tokens: 4, sample: off}
"""


def playbook(folder: Path, rate: float) -> Path:
    (folder / "bundle").mkdir(parents=True)
    (folder / "bundle" / "model.gguf").write_bytes(gguf())
    (folder / "llama-bench").write_text(LLAMA.format(rate=rate) + f"# {folder.name}\n")
    (folder / "playbook.yaml").write_text(PLAYBOOK)
    return folder / "playbook.yaml"


def begun(bench: Bench, tmp_path: Path, rate: float, run_id: str = "ab") -> AbJournal:
    a, b = playbook(tmp_path / "a", 10), playbook(tmp_path / "b", rate)
    limits = {"decode_tps": -0.05}
    asked = Asked(str(a), str(b), "", "", (bench.host.name,), limits)
    return AbJournal.begin(bench.runs, run_id, asked)


def gone_on(
    bench: Bench, journal: AbJournal, budget: float | None = None
) -> DeviceResult[AbReport]:
    result = ended(bench, journal, budget)
    assert result.error is None, result.error
    return result


def ended(bench: Bench, journal: AbJournal, budget: float | None = None) -> DeviceResult[AbReport]:
    sides = [
        side_of(word, journal.asked.playbook, bench.store, bench.events.append, offline=True)
        for word in (journal.asked.a, journal.asked.b)
    ]
    left = Deadline(budget) if budget is not None else None
    result: DeviceResult[AbReport]
    (result,) = on_every_device(
        [bench.host],
        lambda session, found: measure(journal, sides, session, found, left),
        bench.events.append,
    )
    return result


def answers(result: DeviceResult[AbReport]) -> list[Answer]:
    return [item.decision.answer for item in result.answer.answers]


@pytest.mark.parametrize(("rate", "answer"), [(8.5, Answer.FAIL), (10, Answer.PASS)])
def test_one_slowed_by_15_percent_and_two_equal_ones(
    bench: Bench, tmp_path: Path, rate: float, answer: Answer
) -> None:
    journal = begun(bench, tmp_path, rate)
    result = gone_on(bench, journal)
    assert answers(result) == [answer], result.value
    pairs = journal.pairs(bench.host.name)
    assert len(pairs) == 8
    assert bench.current() is None, "nothing is switched"
    assert all(pair.a.release != pair.b.release for pair in pairs)
    said = [event.text for event in bench.events if isinstance(event, StepStarted)]
    turns = [text for text in said if text.startswith("pair ")]
    order = journal.asked.order[bench.host.name]
    assert order == drawn("ab board"), "drawn by the run id and the device, and stored"
    assert [text[-1] for text in turns[::2]] == list(order[:8])
    assert turns[0] == f"pair 1 of 8, {order[0]}"
    assert re.fullmatch(r"pair 2 of 8, about \d+ s left, [AB]", turns[2])
    assert said.index("warm-up 2 of at most 12, B") < said.index(turns[0])
    assert not any(text.startswith("run ") for text in said)
    for pair, first in zip(pairs, order, strict=False):
        runs = (pair.a, pair.b) if first == "A" else (pair.b, pair.a)
        assert runs[0].started <= runs[1].started
    assert {tag for pair in pairs for tag in pair.b.tags} == {"ab-ab", "ab-ab-B"}
    journal.close()


def test_releases_that_lie_on_the_board(bench: Bench, tmp_path: Path) -> None:
    for rate in (10, 8.5):
        bench.playbook = load_playbook(playbook(tmp_path / str(rate), rate))
        (deployed,) = bench.operation(offline=True, run="never").deploy()
        assert deployed.error is None, deployed.error
    live = bench.base.joinpath("current", "llama").resolve().name
    path = str(tmp_path / "8.5" / "playbook.yaml")
    asked = Asked("previous", live[:8], path, "", (bench.host.name,), {})
    journal = AbJournal.begin(bench.runs, "ab", asked)
    result = gone_on(bench, journal)
    assert answers(result) == [Answer.FAIL]
    assert {pair.b.release for pair in journal.pairs(bench.host.name)} == {live}
    journal.close()
    journal = AbJournal.begin(bench.runs, "same", replace(asked, a="current"))
    gone_on(bench, journal, 0.0)
    journal.close()
    said = [event.text for event in bench.events if isinstance(event, Warned)]
    assert said == ["A and B are the same release, so fleet expects no difference"]


def test_a_budget_ends_it_and_it_goes_on(bench: Bench, tmp_path: Path) -> None:
    journal = begun(bench, tmp_path, 8.5)
    stopped = gone_on(bench, journal, 0.0)
    assert answers(stopped) == [Answer.UNDECIDED], "no pairs are no answer"
    assert stopped.answer.in_time is False
    with pytest.raises(
        InputError, match="another fleet process is already working on the comparison"
    ):
        AbJournal.reopen(bench.runs, "ab")
    journal.close()
    journal = AbJournal.reopen(bench.runs, "ab")
    assert answers(gone_on(bench, journal)) == [Answer.FAIL]
    before = journal.pairs(bench.host.name)
    assert answers(gone_on(bench, journal)) == [Answer.FAIL]
    assert journal.pairs(bench.host.name) == before, "an answer is not measured again"
    journal.close()


def failing(path: Path, when: str) -> None:
    """Let the program of a playbook exit with 1 in runs whose number, from 1, fits `when`."""
    program, count = path.with_name("llama-bench"), path.with_name("count")
    count_it = f"echo >> {count}; n=$(wc -l < {count})"
    head = f'case $* in *"-n 4"*) {count_it}; [ $(({when})) = 0 ] || exit 1;; esac\n'
    program.write_text(program.read_text().replace("\n", f"\n{head}", 1))


def test_a_side_that_fails_more_often_is_worse(bench: Bench, tmp_path: Path) -> None:
    """The runs that survive are as fast as those of A: 7 of 20 such were `fine`, before."""
    journal = begun(bench, tmp_path, 10)
    failing(tmp_path / "b" / "playbook.yaml", "n % 2")
    result = gone_on(bench, journal)
    found = result.answer.failures
    assert found is not None
    assert (found.answer, found.a) == (Answer.FAIL, 0)
    assert found.b == 5
    assert found.b_runs == len(journal.tries(bench.host.name)) in {9, 10}
    assert "status 1" in found.words
    again = gone_on(bench, journal).answer.failures
    assert again == found, "an answer is not measured again"
    journal.close()


def test_a_side_a_that_fails_ends_it(bench: Bench, tmp_path: Path) -> None:
    journal = begun(bench, tmp_path, 10)
    failing(tmp_path / "a" / "playbook.yaml", "1")
    result = ended(bench, journal)
    journal.close()
    assert isinstance(result.error, DeviceError)
    assert "3 pairs of runs in sequence were not valid: A" in result.error.message
    assert answers(result) == [Answer.UNDECIDED], "what was measured is shown"


def test_a_side_that_was_edited_is_refused_with_both_releases(bench: Bench, tmp_path: Path) -> None:
    """Pairs of two programs became one row, before."""
    journal = begun(bench, tmp_path, 10)
    for number, side in ((0, "a"), (0, "b")):
        made = record(0, bench.host.name, run_id=f"ab-{number:03}.0{side}", release="old" + side)
        folder = bench.runs.folder(made.run_id, bench.host.name, 0, warmup=False)
        bench.runs.save(folder, made)
    error = ended(bench, journal).error
    journal.close()
    assert isinstance(error, InputError)
    assert re.search(
        r"a/playbook.yaml is another release .* \w{16} now, olda before", error.message
    )
    assert not list(bench.base.glob("releases/llama/*")), "nothing is sent"


def test_a_run_setting_that_was_edited_is_refused(bench: Bench, tmp_path: Path) -> None:
    journal = begun(bench, tmp_path, 10)
    path = tmp_path / "b" / "playbook.yaml"
    settings = side_of(str(path), "", bench.store, print, offline=True).settings
    journal.hold({"B": settings})
    journal.hold({"B": settings})
    path.write_text(PLAYBOOK.replace("max_tokens: 4", "max_tokens: 5"))
    edited = side_of(str(path), "", bench.store, print, offline=True).settings
    with pytest.raises(InputError, match=r"`run: max_tokens` of B .* '5' now, '4' before"):
        journal.hold({"B": edited})
    journal.close()


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_random_no_pair_is_lost_or_doubled(
    bench: Bench, tmp_path: Path, kills: int
) -> None:
    journal = begun(bench, tmp_path, 10)
    journal.close()
    rng, seen = random.Random(3), dict[int, tuple[str, str]]()
    for turn in range(kills + 1):
        child = os.fork()
        if child == 0:
            gone_on(bench, AbJournal.reopen(bench.runs, "ab"))
            os._exit(0)
        if turn < kills:
            time.sleep(rng.uniform(1, 6))
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        again = AbJournal.reopen(bench.runs, "ab")
        found = {
            pair.number: (pair.a.run_id, pair.b.run_id) for pair in again.pairs(bench.host.name)
        }
        again.close()
        assert found.items() >= seen.items(), "a pair is lost"
        assert sorted(found) == list(range(len(found))), "a gap"
        ids = [run for both in found.values() for run in both]
        assert len(ids) == len(set(ids)), "a pair is doubled"
        seen = found
    assert len(seen) == 8


@pytest.mark.parametrize(
    ("values", "still"),
    [([10, 9, 8], False), ([8, 9, 10], False), ([10, 9.95, 9.9], True), ([10, 9, 10], True)],
)
def test_warming_up_ends_where_there_is_no_trend(values: list[float], still: bool) -> None:
    assert steady(values) == still


def test_a_gate_of_a_metric_that_no_run_has_ends_it_at_the_first_run(
    bench: Bench, tmp_path: Path
) -> None:
    a, b = playbook(tmp_path / "a", 10), playbook(tmp_path / "b", 10)
    asked = Asked(str(a), str(b), "", "", (bench.host.name,), {"decode": -0.05})
    journal = AbJournal.begin(bench.runs, "ab", asked)
    error = ended(bench, journal).error
    journal.close()
    assert isinstance(error, InputError)
    assert "no run of A has the metric 'decode'; the runs of A have: decode_tps" in error.message
    assert error.hint == "--gate 'decode_tps<-5%'"
    assert len(list(bench.runs.root.glob("ab*/*/*/record.json"))) == 1


PROBLEM = "cut: the output reached the token limit of 4"


def test_a_side_that_can_never_be_valid_ends_it_at_its_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sides = {
        name: side_of(str(playbook(tmp_path / name, 10)), "", RuntimeStore(tmp_path), print)
        for name in "ab"
    }
    bad = record(0, "evk-01", problems=(PROBLEM,))
    with pytest.raises(DeviceError) as caught:
        check("B", sides["b"], bad, {"decode_tps": -0.05})
    said = caught.value
    assert "no run of B can be valid: B (b/playbook.yaml): the output reached" in said.message
    assert "under `run:` in b/playbook.yaml" in said.hint
    check(
        "B", sides["b"], structs.replace(bad, problems=("failed: status 1",)), {"decode_tps": -0.05}
    )
    error = not_valid("three pairs were not valid", [("A", sides["a"], record(0, "evk-01")),
                                                     ("B", sides["b"], bad)])  # fmt: skip
    assert "not valid: B (b/playbook.yaml): the output" in error.message


def test_how_far_it_is() -> None:
    assert progress(0, []) == "pair 1 of 8"
    assert progress(4, [9, 10, 11]) == "pair 5 of 8, about 40 s left"
    assert progress(8, [60]) == "pair 9 of 14, about 6 min left"
    assert progress(8, [60], Deadline(90)) == "pair 9 of 14, about 90 s left"


def test_both_sides_answer_the_suite_of_b(bench: Bench, tmp_path: Path) -> None:
    """llama-bench answers nothing, so the suite fails at whatever speed; it is asked once."""
    journal = begun(bench, tmp_path, 10)
    with (tmp_path / "b" / "playbook.yaml").open("a") as stream:
        stream.write("suite: {gate: off, prompts: [{prompt: hi, expect: {contains: hi}}]}\n")
    result = ended(bench, journal, 0.0)
    assert result.error is None, result.error
    assert result.value is not None
    suites = result.value.suites
    assert suites is not None
    assert suites.worse
    assert suites.text == "0 of 1 prompts of the suite playbook passed, was 0 (emulated)"
    again = ended(bench, journal, 0.0)
    assert again.value is not None
    assert again.value.suites == suites
    assert [record for record in again.records if record.suite] == []
