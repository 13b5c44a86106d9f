"""`fleet ab` on a board behind a real sshd: two releases, one slowed, or two that are equal."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.config.playbook import load_playbook
from fleet.engine.ab.journal import AbJournal, Asked
from fleet.engine.ab.measuring import measure
from fleet.engine.ab.sides import side_of
from fleet.engine.pool import DeviceResult, on_every_device
from fleet.model.deadline import Deadline
from fleet.model.errors import InputError
from fleet.model.events import StepStarted, Warned
from fleet.profiles.compare.sequential import Answer
from fleet.profiles.stats.trend import steady

from ..conftest import Bench

# A rate of 10, by so much noise; it says what it is, and takes the time that a process takes.
LLAMA = """#!/bin/sh
echo "stand-in for llama-bench" >&2
awk -v seed="$(od -An -N4 -tu4 /dev/urandom)" -v rate={rate} 'BEGIN {{
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
    (folder / "bundle" / "model.gguf").write_text("GGUF")
    (folder / "llama-bench").write_text(LLAMA.format(rate=rate) + f"# {folder.name}\n")
    (folder / "playbook.yaml").write_text(PLAYBOOK)
    return folder / "playbook.yaml"


def begun(bench: Bench, tmp_path: Path, rate: float, run_id: str = "ab") -> AbJournal:
    a, b = playbook(tmp_path / "a", 10), playbook(tmp_path / "b", rate)
    limits = {"decode_tps": -0.05}
    asked = Asked(str(a), str(b), "", "", (bench.host.name,), limits)
    return AbJournal.begin(bench.runs, run_id, asked)


def gone_on(bench: Bench, journal: AbJournal, budget: float | None = None) -> DeviceResult:
    sides = [
        side_of(word, journal.asked.playbook, bench.store, bench.events.append, offline=True)
        for word in (journal.asked.a, journal.asked.b)
    ]
    left = Deadline(budget) if budget is not None else None
    (result,) = on_every_device(
        [bench.host],
        lambda session, found: measure(journal, sides, session, found, left),
        bench.events.append,
        parallel=1,
    )
    assert result.error is None, result.error
    return result


def answers(result: DeviceResult) -> list[Answer]:
    found = result.details["ab"]
    assert isinstance(found, list)
    return [item.decision.answer for item in found]


@pytest.mark.parametrize(("rate", "answer"), [(8.5, Answer.WORSE), (10, Answer.FINE)])
def test_one_slowed_by_15_percent_and_two_equal_ones(
    bench: Bench, tmp_path: Path, rate: float, answer: Answer
) -> None:
    journal = begun(bench, tmp_path, rate)
    result = gone_on(bench, journal)
    assert answers(result) == [answer], result.details
    pairs = journal.pairs(bench.host.name)
    assert len(pairs) == 8
    assert bench.current() is None, "nothing is switched"
    assert all(pair.a.release != pair.b.release for pair in pairs)
    said = [event.text for event in bench.events if isinstance(event, StepStarted)]
    turns = [text for text in said if text.startswith("pair ")]
    assert turns[:4] == [
        f"pair {pair} of 40 at most, {side}"
        for pair, side in ((1, "A"), (1, "B"), (2, "B"), (2, "A"))
    ]
    began = [pair.a.started <= pair.b.started for pair in pairs]
    assert began[0]
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
    assert answers(result) == [Answer.WORSE]
    assert {pair.b.release for pair in journal.pairs(bench.host.name)} == {live}
    journal.close()
    journal = AbJournal.begin(bench.runs, "same", replace(asked, a="current"))
    gone_on(bench, journal, 0.0)
    journal.close()
    said = [event.text for event in bench.events if isinstance(event, Warned)]
    assert said == ["A and B are the same release, so fleet expects no difference"]


def test_a_budget_ends_it_and_it_goes_on(bench: Bench, tmp_path: Path) -> None:
    journal = begun(bench, tmp_path, 8.5)
    assert answers(gone_on(bench, journal, 0.0)) == []
    with pytest.raises(
        InputError, match="another fleet process is already working on the comparison"
    ):
        AbJournal.reopen(bench.runs, "ab")
    journal.close()
    journal = AbJournal.reopen(bench.runs, "ab")
    assert answers(gone_on(bench, journal)) == [Answer.WORSE]
    before = journal.pairs(bench.host.name)
    assert answers(gone_on(bench, journal)) == [Answer.WORSE]
    assert journal.pairs(bench.host.name) == before, "an answer is not measured again"
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
