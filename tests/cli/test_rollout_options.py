"""Rollouts as they are typed: plan, deploy with options, Ctrl-C, resume, the list of runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from fleet.cli.deploy import end_deploy
from fleet.cli.rollout_options import RolloutFlags, with_rollout
from fleet.config.playbook import load_playbook
from fleet.engine.pool import DeviceResult
from fleet.engine.rollout.claim import claim, newest
from fleet.engine.rollout.deploying import continuation
from fleet.engine.rollout.driver import Ending
from fleet.model.errors import InputError
from fleet.model.inventory import Host
from fleet.model.playbook import Playbook
from fleet.model.rollout import Amount, RolloutSpec
from tests.engine.rollout.boards import Yard, yard


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Yard]:
    with yard(tmp_path, 2) as boards:
        yield boards


def write(boards: Yard, rollout: str) -> None:
    text = boards.playbook.read_text()
    boards.playbook.write_text(text + f"rollout: {rollout}\n")
    assert load_playbook(boards.playbook).rollout


def test_plan_shows_who_is_in_which_wave(two: Yard) -> None:
    write(two, "{canary: b2, max_failed: 50%, soak: 90s}")
    args = ("plan", "-i", str(two.inventory), str(two.playbook))
    code, said = two.fleet(*args)
    assert code == 0, said
    _, *rows = [re.split(r"\s*\|\s*", line) for line in said.splitlines() if " | " in line]
    assert rows == [["canary", "1", "1/2", "0", "0", "b2"], ["1", "1", "2/2", "0", "0", "b1"]]
    assert "waits 90 s after each wave" in said
    code, said = two.fleet(*two.deploy_args("--dry-run", "--json", "--canary", "0"))
    waves = [one for one in map(json.loads, said.splitlines()) if one["event"] == "Waves"]
    assert waves[0]["rollout"]["canary_hosts"] == []
    assert waves[0]["waves"] == [
        {"wave": "1", "hosts": ["b1", "b2"], "may_fail": 1, "may_be_unreachable": 0}
    ]
    assert not two.base("b1").exists()


BAD = [
    ("canary", "120%", "--canary: 120% is more than 100% of the devices"),
    ("waves", "50%,5%", "--waves: wave 5% follows wave 50%"),
    ("waves", "half", "--waves: 'half' is neither"),
    ("waves", "0,5", "--waves: a wave cannot have 0 devices"),
    ("max_failed", "some", "--max-failed: 'some' is neither"),
    ("max_unreachable", "-1", "--max-unreachable: '-1' is neither"),
    ("soak", "soon", "--soak: 'soon' is not a duration"),
    ("on_fail", "explode", "--on-fail: 'explode' is not a value of on_fail"),
]


@pytest.mark.parametrize(("option", "value", "words"), BAD)
def test_bad_options(option: str, value: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        with_rollout(Playbook(Path("p"), "app", Path("b")), RolloutFlags(**{option: value}))
    assert caught.value.message.startswith(words)
    assert caught.value.hint


def test_options_win_over_the_playbook() -> None:
    own = RolloutSpec(canary_hosts=("b1",), soak=60.0, max_failed=Amount.parse("10%"))
    playbook = Playbook(Path("p"), "app", Path("b"), rollout=own)
    assert with_rollout(playbook, RolloutFlags()) is playbook
    changed = with_rollout(playbook, RolloutFlags(canary="2", soak="0", waves="5%, 50")).rollout
    assert changed == RolloutSpec(
        canary=Amount.parse(2),
        waves=(Amount.parse("5%"), Amount.parse(50)),
        max_failed=Amount.parse("10%"),
    )
    named = with_rollout(playbook, RolloutFlags(canary="b1,b2")).rollout
    assert named is not None
    assert named.canary_hosts == ("b1,b2",)
    bare = with_rollout(Playbook(Path("p"), "app", Path("b")), RolloutFlags(max_failed="1")).rollout
    assert bare == RolloutSpec(max_failed=Amount.parse(1))


def test_a_canary_that_is_not_there(two: Yard) -> None:
    code, said = two.fleet(*two.deploy_args("--canary", "b9"))
    assert (code, "no host or group matches 'b9'" in said) == (2, True), said
    assert two.contacts("b1") == 0
    assert not list(two.home.glob("runs/*")), "nothing was begun"


def test_no_run_to_resume(two: Yard) -> None:
    for args, words in (
        (("deploy", "--force-inputs"), "--force-inputs has no effect without --resume"),
        (("deploy", "--resume", "last"), "has no journal"),
    ):
        code, said = two.fleet(*args)
        assert (code, words in said) == (2, True), said
    code, said = two.fleet("resume", "last")
    assert (code, "has no journal" in said) == (2, True), said
    assert said.count("`fleet resume` is now `fleet deploy --resume`") == 1
    code, said = two.fleet("deploy", "--runs", "--json")
    assert (code, json.loads(said)) == (0, [])


def wait_for(boards: Yard, step: str) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if list(boards.runs.root.glob("*/*")) and step in boards.steps():
            return
        time.sleep(0.05)
    raise AssertionError(f"no step {step}")


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_ctrl_c_says_how_to_go_on(two: Yard, times: int) -> None:
    slow = two.folder / "b1" / "slow"
    slow.parent.mkdir()
    slow.touch()
    process = two.start(*two.deploy_args("--canary", "1", "--no-run"))
    wait_for(two, "health")
    run_id = two.journal().parent.name
    code, said = two.fleet("deploy", "--resume", run_id)
    assert (code, "another fleet process is working on run" in said) == (2, True), said
    (shown,) = json.loads(two.fleet("deploy", "--runs", "--json")[1])
    assert (shown["run"], shown["state"], shown["done"], shown["devices"]) == (
        run_id, "working", 0, 2,
    )  # fmt: skip
    for _ in range(times):
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    if times == 1:
        assert process.returncode == 130, out + err
        assert f"continue with: fleet deploy --resume {run_id}" in err
    assert process.returncode != 0
    slow.unlink()
    (shown,) = json.loads(two.fleet("deploy", "--runs", "--json")[1])
    assert shown["state"] in ({"interrupted"} if times == 1 else {"interrupted", "unfinished"})

    code, said = two.fleet("deploy", "--resume", "last")
    assert code == 0, said
    _, *rows = [re.split(r"\s*\|\s*", line)[:3] for line in said.splitlines() if " | " in line]
    assert rows == [["b1", "canary", "changed"], ["b2", "1", "changed"]]
    code, said = two.fleet("deploy", "--resume", run_id)
    assert (code, f"run {run_id} is finished" in said) == (0, True), said
    code, said = two.fleet("deploy", "--runs")
    assert re.search(rf"{run_id}.*app.*finished.*2/2", said), said
    assert json.loads(two.fleet("profiles", "list", "--json")[1]) == [], "nothing was measured"


_BEGUN = """
import os, signal
from fleet.engine.rollout import claim
claim.claim_early()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_resume_last_never_answers_for_the_run_before(two: Yard) -> None:
    """A deploy that is killed while its modules are loaded has left its run."""
    code, said = two.fleet(*two.deploy_args("--no-run"))
    assert code == 0, said
    first = two.journal().parent.name
    done = subprocess.run(
        [sys.executable, "-c", _BEGUN], env={**os.environ, "FLEET_HOME": str(two.home)}, check=False
    )
    assert done.returncode == -signal.SIGKILL
    code, said = two.fleet("deploy", "--resume", "last")
    assert (code, "is empty: the run ended before" in said) == (2, True), said
    assert first not in said


def test_a_finished_run_of_other_files_is_not_what_was_asked_for(two: Yard) -> None:
    """Killed before Python had loaded a line of fleet: no run, but not the same bundle either."""
    code, said = two.fleet(*two.deploy_args("--no-run"))
    assert code == 0, said
    code, said = two.fleet("deploy", "--resume", "last")
    assert (code, "is finished" in said) == (0, True), said
    two.write_model("two")
    code, said = two.fleet("deploy", "--resume", "last")
    assert (code, "these inputs changed since run" in said) == (2, True), said
    run_id = two.journal().parent.name
    code, said = two.fleet("deploy", "--resume", run_id)
    assert (code, f"run {run_id} is finished" in said) == (0, True), said


def test_a_refused_deploy_leaves_no_run(two: Yard) -> None:
    code, said = two.fleet(*two.deploy_args("--no-run"))
    assert code == 0, said
    before = sorted(two.home.glob("runs/*"))
    note = (two.home / "runs" / ".last-run").read_text()
    for words in (("--canary", "b9"), ("--no-such-option",), ("--help",)):
        two.fleet(*two.deploy_args(*words))
        assert sorted(two.home.glob("runs/*")) == before
        assert (two.home / "runs" / ".last-run").read_text() == note


def test_a_run_of_the_future_is_not_the_last(tmp_path: Path) -> None:
    now = time.time()
    ids = [
        time.strftime("%Y%m%d-%H%M%S-00000" + str(number), time.gmtime(now + days * 86400))
        for number, days in enumerate((-2, -1, 365))
    ]
    assert newest(tmp_path, ids) == ids[1]
    assert newest(tmp_path, ids[2:]) == ids[2]
    claim(tmp_path / ids[2] / "journal.jsonl")
    assert newest(tmp_path, ids) == ids[2], "a clock that is wrong now"
    claim(tmp_path / ids[0] / "journal.jsonl")
    assert newest(tmp_path, ids) == ids[1], "one of an earlier fleet, without the note"
    assert newest(tmp_path, [ids[0], ids[2]]) == ids[0]


def test_a_stopped_rollout_says_so_and_its_exit_code_is_not_0(two: Yard) -> None:
    two.make_sick("b1")
    code, said = two.fleet(*two.deploy_args("--canary", "1", "--no-run"))
    run_id = two.journal().parent.name
    assert code == 1, said
    assert "rollout: stopped after the canary: none of 1 devices succeeded (1 failed)" in said
    assert f"next: fleet deploy --resume {run_id}" in said
    assert re.search(r"b2\s+\| 1\s+\| not attempted", said), said
    code, said = two.fleet("deploy", "--resume", run_id, "--json")
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert (code, events[-1]["event"], events[-1]["ending"]) == (1, "RolloutDone", "stopped")
    assert [one["outcome"] for one in events[-1]["devices"]] == ["failed", "not attempted"]


SECRET = "canary-4711-secret"


def test_no_secret_is_in_the_journal(two: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_TEST_PASSWORD", SECRET)
    (two.folder / "secret").write_text(f"{SECRET}\n")
    text = two.inventory.read_text()
    for number, reference in enumerate(("env:FLEET_TEST_PASSWORD", "file:secret"), 1):
        more = f"      become_password: {reference}\n      password: {reference}\n"
        text = text.replace(f"    b{number}:\n", f"    b{number}:\n{more}")
    two.inventory.write_text(text)
    (two.folder / "playbook.yaml").write_text(
        two.playbook.read_text().replace("max_tokens: 4", f"max_tokens: 4, prompt: {SECRET}")
    )
    two.make_sick("b2")
    code, said = two.fleet(*two.deploy_args("--on-fail", "rollback", "--waves", "1"))
    assert code == 1, said
    two.fleet("deploy", "--resume", "last")
    assert SECRET not in said
    found = two.journal().read_text()
    assert len(found.splitlines()) > 10
    assert SECRET not in found


@pytest.mark.parametrize(
    ("outcomes", "command"),
    [
        (("refused", "refused"), "fleet deploy"),
        (("changed", "refused", "not attempted"), "fleet deploy"),
        (("refused", "failed"), "fleet deploy --resume run1"),
        (("unreachable", "not attempted"), "fleet deploy --resume run1"),
        (("not attempted",), "fleet deploy --resume run1"),
    ],
)
def test_a_refused_deploy_is_begun_again_and_not_resumed(
    outcomes: tuple[str, ...], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [DeviceResult[None](Host(f"b{n}"), word) for n, word in enumerate(outcomes)]
    assert continuation("run1", results) == command
    playbook = Playbook(Path("p"), "app", Path("b"))
    operation = SimpleNamespace(playbook=playbook, run_id="run1", ending=Ending("stopped", ""))
    with pytest.raises(typer.Exit):
        end_deploy(operation, results, as_json=False)  # type: ignore[arg-type]
    said = " ".join(capsys.readouterr().err.split())
    assert said.partition(": ")[2].startswith(command), said
