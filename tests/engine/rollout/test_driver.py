"""The whole rollout with a executor of no devices: who is attempted, who is not, what is said."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.engine.deploy.operation import Operation
from fleet.engine.pool import FINE, DeviceResult, Remote
from fleet.engine.rollout.driver import Ending
from fleet.engine.rollout.journal import Journal
from fleet.engine.rollout.judge import judge, tally
from fleet.engine.rollout.lines import ResumeLine
from fleet.engine.rollout.state import RunState
from fleet.model.errors import InputError
from fleet.model.events import RolledBack, WaveJudged, WaveStarted
from fleet.model.playbook import Playbook
from fleet.model.rollout import RolloutSpec

from .fakes import OURS, KilledError, Played, go_on, names, play, spec
from .test_waves import SPECS

FAILED, AWAY = "failed", "unreachable"
TEN = {"waves": ("50%", "100%")}

Row = tuple[int, dict[str, Any], dict[int, str], int, list[int], str]
# devices, rules, outcomes that are not `changed`, parallel, attempted, how it ended
TABLE: list[Row] = [
    (10, {}, {}, 4, [*range(1, 11)], "finished"),
    (10, TEN, {}, 4, [*range(1, 11)], "finished"),
    # a failed canary: nothing else
    (10, {"canary": "1"}, {1: FAILED}, 4, [1], "stopped"),
    (10, {"canary": "1", "max_failed": "5"}, {1: FAILED}, 4, [1], "stopped"),
    (10, {"canary": "2"}, {2: AWAY}, 4, [1, 2], "stopped"),
    # one at a time: the wave itself ends at the first one above the limit
    (10, TEN, {1: FAILED}, 1, [1], "stopped"),
    (10, TEN, {3: FAILED}, 1, [1, 2, 3], "stopped"),
    (10, {**TEN, "max_failed": "1"}, {1: FAILED, 3: FAILED}, 1, [1, 2, 3], "stopped"),
    (10, {**TEN, "max_failed": "20%"}, {1: FAILED, 3: FAILED}, 1, [1, 2, 3], "stopped"),
    (10, {**TEN, "max_failed": "40%"}, {1: FAILED, 3: FAILED}, 1, [*range(1, 11)], "failed"),
    # one more than the limit in the second wave counts there alone
    (10, {**TEN, "max_failed": "1"}, {1: FAILED, 6: FAILED}, 1, [*range(1, 11)], "failed"),
    # unreachable is not failed
    (10, {**TEN, "max_failed": "5"}, {1: AWAY}, 1, [1], "stopped"),
    (10, {**TEN, "max_unreachable": "1"}, {1: AWAY}, 1, [*range(1, 11)], "failed"),
    (10, {**TEN, "max_unreachable": "1"}, {2: FAILED}, 1, [1, 2], "stopped"),
    # at work when the limit falls: they come to their end, no other begins
    (10, TEN, {1: FAILED, 2: FAILED, 3: FAILED, 4: FAILED}, 4, [1, 2, 3, 4], "stopped"),
    # a wave in which all fail ends it, whatever is allowed
    (10, {**TEN, "max_failed": "100%"}, dict.fromkeys(range(1, 6), FAILED), 5, [*range(1, 6)],
     "stopped"),
    (10, {**TEN, "on_fail": "continue"}, dict.fromkeys(range(1, 6), FAILED), 2, [*range(1, 6)],
     "stopped"),
    (10, {**TEN, "on_fail": "continue"}, dict.fromkeys(range(1, 6), AWAY), 2, [*range(1, 6)],
     "stopped"),
    (10, {**TEN, "on_fail": "continue"}, dict.fromkeys(range(1, 5), FAILED), 2, [*range(1, 11)],
     "failed"),
    (10, {**TEN, "on_fail": "rollback"}, {7: FAILED}, 1, [*range(1, 8)], "rolled back"),
]  # fmt: skip


@pytest.mark.parametrize("row", TABLE)
def test_who_is_attempted(row: Row) -> None:
    count, rules, bad, parallel, attempted, ending = row
    every = names(count)
    outcomes = {every[number - 1]: outcome for number, outcome in bad.items()}
    played = play(count, spec(**rules), outcomes=outcomes, parallel=parallel)
    assert played.executor.attempted == [every[number - 1] for number in attempted]
    assert played.ending.word == ending
    assert bool(played.ending.text) == (ending != "finished")


def check_no_attempt_after_a_stop(played: Played, rules: RolloutSpec) -> None:
    """Replay in the order of the journal: at each `begin` the wave was allowed to go on."""
    state = played.journal.state
    assert len(played.executor.attempted) == len(set(played.executor.attempted)), (
        "each at most once"
    )
    stops = [one for one in played.events if isinstance(one, WaveJudged) and one.verdict != "go"]
    assert len(stops) <= 1
    if stops:
        started = [one.wave for one in played.events if isinstance(one, WaveStarted)]
        assert started[-1] == stops[0].wave, "no wave begins after a stop"
    for wave in state.header.waves:
        outcomes = {name: state.devices[name].outcome for name in wave.hosts}
        untouched = [name for name in wave.hosts if name not in played.attempted]
        if untouched and played.attempted & set(wave.hosts):
            assert judge(wave, rules, tally(wave, outcomes)).word != "go", (
                "a wave ends early for a reason only"
            )


OUTCOMES = st.sampled_from(["changed", "unchanged", FAILED, AWAY, "refused"])


@settings(max_examples=300)
@given(SPECS, st.lists(OUTCOMES, min_size=1, max_size=24), st.data())
def test_nothing_is_attempted_after_a_stop(
    rules: RolloutSpec, outcomes: list[str], data: st.DataObject
) -> None:
    every = names(len(outcomes))
    table = dict(zip(every, outcomes, strict=True))
    looks = dict.fromkeys(data.draw(st.sets(st.sampled_from(every))), FAILED)
    parallel, seed = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 1000))
    played = play(len(every), rules, outcomes=table, looks=looks, parallel=parallel, seed=seed)
    check_no_attempt_after_a_stop(played, rules)
    assert played.executor.most <= parallel
    fine = all(one.fine for one in played.journal.state.devices.values())
    assert (played.ending.word == "finished") == fine
    if played.ending.word != "finished":
        assert played.ending.text
    assert (played.executor.returned != []) <= (rules.on_fail == "rollback")


@pytest.mark.parametrize("on_fail", ["stop", "rollback", "continue"])
@pytest.mark.parametrize("allowed", ["0", "100%"])
def test_a_full_disk_of_the_workstation_is_no_failure_of_devices(
    on_fail: str, allowed: str
) -> None:
    """It stops the rollout, whatever is allowed, and no board that is well goes back."""
    rules = spec(waves=("50%",), max_failed=allowed, on_fail=on_fail)
    played = play(8, rules, outcomes=dict.fromkeys(("d002", "d003"), OURS), parallel=1)
    assert played.executor.returned == []
    if on_fail == "continue":
        assert played.executor.attempted == names(8)
        assert played.ending == Ending("failed", "2 of 8 devices failed or were not attempted")
        return
    assert played.executor.attempted == ["d001", "d002"]
    assert played.ending.word == "stopped"
    assert played.ending.text == (
        "stopped in wave 1: this workstation cannot write /x: No space left on device"
    )
    again = go_on(played.journal)
    assert again.ending.word == "finished"
    assert again.executor.attempted == names(8)[1:]


def test_what_failed_beside_a_full_disk_is_judged_as_ever() -> None:
    rules = spec(max_failed="0", on_fail="rollback")
    played = play(3, rules, outcomes={"d002": FAILED, "d003": OURS}, parallel=3)
    assert played.ending.text.startswith(
        "stopped after wave 1: 1 of 3 devices failed; the limit is 0"
    )
    assert set(played.executor.returned) == {"d001", "d003"}


def test_soak_looks_at_what_this_run_changed_only() -> None:
    rules = spec(waves=("50%",), soak=30.0)
    played = play(4, rules, outcomes={"d001": "unchanged", "d003": "unchanged"})
    assert played.executor.looked == ["d002", "d004"]
    assert played.executor.waits == [30.0, 30.0]
    idle = play(4, rules, outcomes=dict.fromkeys(names(4), "unchanged"))
    assert (idle.executor.waits, idle.ending.word) == ([], "finished")


@pytest.mark.parametrize("found", [FAILED, AWAY])
def test_a_board_that_is_bad_after_the_soak_stops_the_rollout(found: str) -> None:
    played = play(6, spec(canary="1", soak=1.0), looks={"d001": found})
    assert played.executor.attempted == ["d001"]
    assert played.ending.word == "stopped"
    device = played.journal.state.devices["d001"]
    assert device.outcome == found
    assert device.text == f"the check after the soak time failed: it is {found}"


def test_no_soak_for_a_wave_that_has_failed() -> None:
    played = play(6, spec(waves=("50%",), soak=9.0), outcomes={"d001": FAILED})
    assert played.executor.waits == []


def test_rollback_takes_back_what_this_run_switched() -> None:
    rules = spec(canary="1", waves=("50%",), on_fail="rollback")
    outcomes = {"d002": "unchanged", "d005": FAILED}
    played = play(
        6, rules, outcomes=outcomes, parallel=1, fresh=frozenset({"d003"}), backs={"d004": FAILED}
    )
    assert played.executor.attempted == names(6)[:5]
    assert played.executor.returned == ["d001", "d004"], (
        "d003 had none before, d002 was not changed"
    )
    assert played.ending.word == "not rolled back"
    assert "stopped in wave 2: 1 of 3 devices failed; the limit is 0" in played.ending.text
    assert "fleet rolled back 1 of 3 changed devices, not: d003, d004" in played.ending.text
    said = {one.host: one for one in played.events if isinstance(one, RolledBack)}
    assert said["d001"].outcome == "rolled back"
    assert "no earlier release" in said["d003"].text
    again = go_on(played.journal)
    assert (again.executor.attempted, again.executor.returned) == ([], ["d004"])
    assert again.ending.word == "rolled back"
    assert again.journal.state.complete


class TestKilled:
    """The process dies after any number of results; another one goes on."""

    def play_to_the_end(
        self, path: Path, count: int, rules: RolloutSpec, after: int, **executor: Any
    ) -> list[Played]:
        """Kill after each `after` results until it ends; gives what each process did."""
        found = []
        with contextlib.suppress(KilledError):
            found.append(play(count, rules, path=path, die_after=after, **executor))
        while not found:
            journal = Journal.reopen(path)
            journal.write(ResumeLine(forced=False))
            before = {one.name for one in journal.state.devices.values() if one.fine}
            try:
                found.append(go_on(journal, die_after=after, **executor))
            except KilledError:
                now = {one.name for one in journal.state.devices.values() if one.fine}
                assert before <= now
                journal.close()
                continue
            assert not before & found[-1].attempted, "what is done is not contacted again"
        return found

    @pytest.mark.parametrize("after", [1, 2, 3, 7])
    def test_each_goes_on_where_the_last_one_was_killed(self, tmp_path: Path, after: int) -> None:
        rules = spec(canary="1", waves=("40%",), soak=5.0)
        path = tmp_path / "run" / "journal.jsonl"
        (last,) = self.play_to_the_end(path, 10, rules, after, parallel=3)
        assert last.ending.word == "finished"
        state = Journal.read(path)
        assert state.complete
        assert all(one.fine and one.looked == "ok" for one in state.devices.values())
        text = path.read_text()
        assert text.count('"line": "look"') == 10, "each is looked at once"
        attempts = [one.attempts for one in state.devices.values()]
        assert sum(attempts) <= 10 + 2 * text.count('"line": "resume"') + 2

    def test_the_rollback_goes_on_too(self, tmp_path: Path) -> None:
        rules = spec(waves=("80%",), on_fail="rollback")
        path = tmp_path / "run" / "journal.jsonl"
        with pytest.raises(KilledError):
            play(10, rules, path=path, outcomes={"d009": FAILED}, die_after=11, parallel=1)
        assert sum(1 for one in Journal.read(path).devices.values() if one.back) == 2
        again = go_on(Journal.reopen(path))
        assert again.executor.attempted == []
        assert again.executor.returned == names(10)[2:8]
        assert again.ending.word == "rolled back"

    @settings(max_examples=60)
    @given(SPECS, st.integers(1, 12), st.integers(1, 9), st.integers(1, 4), st.integers(0, 99))
    def test_a_run_of_many_processes_ends_as_one_of_a_single_one(
        self, rules: RolloutSpec, count: int, after: int, parallel: int, seed: int
    ) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run" / "journal.jsonl"
            executor = {"parallel": parallel, "seed": seed}
            (last,) = self.play_to_the_end(path, count, rules, after, **executor)
            assert last.ending.word == "finished"
            assert Journal.read(path).complete


def test_resume_tries_again_what_failed_and_goes_on() -> None:
    rules = spec(canary="1", waves=("50%",))
    played = play(8, rules, outcomes={"d003": FAILED, "d004": AWAY}, parallel=1)
    assert played.executor.attempted == ["d001", "d002", "d003"]
    again = go_on(played.journal)
    assert again.executor.attempted == names(8)[2:]
    assert again.ending.word == "finished"
    assert all(one.outcome in FINE for one in again.journal.state.devices.values())


def test_resume_counts_a_wave_as_a_whole() -> None:
    """Two of five may fail: one did for good, the other two are tried now."""
    rules = spec(waves=("50%",), max_failed="1")
    bad = {"d001": FAILED, "d002": FAILED}
    played = play(10, rules, outcomes=bad, parallel=1)
    assert played.executor.attempted == ["d001", "d002"]
    again = go_on(played.journal, outcomes={"d001": FAILED}, parallel=1)
    assert again.executor.attempted == names(10)
    assert again.ending.word == "failed"
    third = go_on(again.journal, parallel=1)
    assert third.executor.attempted == ["d001"]
    assert third.ending.word == "finished"


def test_state_is_the_same_live_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "run" / "journal.jsonl"
    rules = spec(canary="1", soak=2.0, on_fail="rollback", max_failed="10%")
    played = play(9, rules, path=path, outcomes={"d004": FAILED}, looks={"d001": "ok"})
    live: RunState = played.journal.state
    played.journal.close()
    assert Journal.read(path) == live


class Afar(Remote):
    """A cluster that is never asked."""

    def everywhere(self, *args: Any, **more: Any) -> list[DeviceResult[Any]]:
        raise AssertionError("nothing may be begun")


@pytest.mark.parametrize("rules", [spec(soak=1.0), spec(on_fail="rollback")])
def test_a_cluster_neither_soaks_nor_rolls_back(tmp_path: Path, rules: RolloutSpec) -> None:
    playbook = Playbook(tmp_path / "p", "app", tmp_path, rollout=rules)
    operation = Operation.__new__(Operation)
    operation.playbook, operation._executor = playbook, Afar()
    with pytest.raises(InputError, match="does not support"):
        operation.deploy()
