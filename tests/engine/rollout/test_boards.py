"""Rollouts on real boards: the engine, sshd, a health probe that really runs there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.engine.pool import DeviceResult
from fleet.engine.rollout import deploying
from fleet.engine.rollout.deploying import DeviceExecutor, begin
from fleet.engine.rollout.journal import Journal
from fleet.engine.rollout.lines import ResumeLine
from fleet.engine.rollout.resume import reopen
from fleet.model.errors import BundleError, HealthError, InputError, UnreachableError
from fleet.model.events import DeviceDone, RolloutDone, WaveJudged
from tests.profiles.records import load

from .boards import Yard, yard


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Yard]:
    with yard(tmp_path, 1) as boards:
        yield boards


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Yard]:
    with yard(tmp_path, 2) as boards:
        yield boards


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Yard]:
    with yard(tmp_path, 3) as boards:
        yield boards


def outcomes(results: list[DeviceResult[Any]]) -> list[str]:
    return [one.outcome for one in results]


def go_on(boards: Yard) -> list[DeviceResult[Any]]:
    """`fleet deploy --resume last` in this process."""
    boards.events.clear()
    journal = Journal.reopen(boards.journal())
    operation = reopen(journal, boards.events.append, runs=boards.runs)
    journal.write(ResumeLine(forced=False))
    return operation.go_on(journal)


def test_a_canary_that_fails_leaves_the_rest_untouched(two: Yard) -> None:
    two.make_sick("b1")
    operation = two.operation("{canary: 1}")
    results = operation.deploy()
    assert outcomes(results) == ["failed", "not attempted"]
    assert isinstance(results[0].error, HealthError)
    text = "stopped after the canary: none of 1 devices succeeded (1 failed)"
    assert results[1].text == operation.ending.text == text
    assert [two.contacts(name) for name in two.names] == [1, 0]
    assert not two.base("b2").exists()
    done = [each for each in two.events if isinstance(each, DeviceDone)]
    assert [each.outcome for each in done] == outcomes(results)
    assert done[1].hint == f"fleet deploy --resume {operation.run_id}"
    (end,) = [each for each in two.events if isinstance(each, RolloutDone)]
    assert end.devices[1] == {
        "host": "b2", "wave": "1", "outcome": "not attempted", "text": text
    }  # fmt: skip

    two.make_sick("b1", sick=False)
    assert outcomes(go_on(two)) == ["changed", "changed"]
    assert len(set(two.live)) == 1
    assert Journal.read(two.journal()).complete


def test_unreachable_and_failed_are_told_apart(three: Yard) -> None:
    three.server("b2").stop()
    operation = three.operation("{max_failed: 3}")
    results = operation.deploy()
    assert outcomes(results) == ["changed", "unreachable", "not attempted"]
    assert isinstance(results[1].error, UnreachableError)
    assert operation.ending.text.endswith("1 of 3 devices were unreachable; the limit is 0")

    results = three.operation("{max_unreachable: 1}").deploy()
    assert outcomes(results) == ["unchanged", "unreachable", "changed"]
    three.server("b2").start()
    before = three.contacts("b1"), three.contacts("b3")
    again = go_on(three)
    assert outcomes(again) == ["unchanged", "changed", "changed"]
    assert again[0].text.endswith(", before")
    assert (three.contacts("b1"), three.contacts("b3")) == before, "they are done"


def test_rollback_of_what_this_run_changed(three: Yard) -> None:
    """b1 has a release before, b2 has none, b3 fails."""
    (old,) = three.first_release("b1")
    three.write_model("two", 20_000)
    three.make_sick("b3")
    operation = three.operation("{waves: [1, 2], on_fail: rollback}")
    results = operation.deploy()
    assert outcomes(results) == ["rolled back", "not rolled back", "failed"]
    assert three.current("b1") == old
    assert three.current("b2") not in {old, None}, "it stays as it is"
    assert three.current("b3") is None
    assert isinstance(results[2].error, HealthError)
    assert "no earlier release" in results[1].text
    assert "fleet rolled back 1 of 2 changed devices, not: b2" in operation.ending.text
    assert results[0].bytes_sent <= 21_000, "nothing is sent for the way back"
    backs = [(line["host"], line["outcome"]) for line in three.lines() if line["line"] == "back"]
    assert backs == [("b2", "left"), ("b1", "rolled back")]
    assert Journal.read(three.journal()).word == "rolled back"


def test_rollback_leaves_what_somebody_else_has_switched(
    one: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    (old,) = one.first_release("b1")
    one.write_model("two")
    operation = one.operation("{soak: 1s, on_fail: rollback}")
    link = one.base("b1") / "current" / "app"

    def soak(executor: DeviceExecutor, seconds: float) -> None:
        link.unlink()
        link.symlink_to(f"../releases/app/{old}")

    monkeypatch.setattr(DeviceExecutor, "wait", soak)
    (result,) = operation.deploy()
    assert result.outcome == "not rolled back"
    assert f"current release is {old}" in result.text
    assert one.current("b1") == old


def spoil(boards: Yard, kind: str) -> Callable[[], object]:
    """Something happens to board b1; gives the way back."""
    current = boards.base("b1") / "current" / "app"
    release = current.resolve()
    own = release.parents[2] / "meta" / release.parent.name / release.name
    model = release / "bundle" / "model.gguf"
    match kind:
        case "a blob is cut":
            blob = model.resolve()
            whole = blob.read_bytes()
            blob.chmod(0o600)
            blob.write_bytes(b"x")
            return lambda: blob.write_bytes(whole)
        case "a link is gone":
            aside = model.rename(release / "aside")
            return lambda: aside.rename(model)
        case "another release is current":
            target = current.readlink()
            current.unlink()
            return lambda: current.symlink_to(target)
        case "the manifest is another":
            manifest = own / "manifest.json"
            text = manifest.read_text()
            manifest.write_text(text.replace("llama.cpp", "llama.cqq"))
            return lambda: manifest.write_text(text)
        case "the stamp is gone":
            aside = (own / ".installed").rename(own / "aside")
            return lambda: aside.rename(own / ".installed")
        case "it opens no session":
            boards.make_sick("b1")
            return lambda: boards.make_sick("b1", sick=False)
        case "it is off":
            boards.server("b1").stop()
            return boards.server("b1").start
        case _:
            return lambda: None


LOOKS = [
    ("nothing", "ok", "is complete and works"),
    ("a blob is cut", "failed", "bundle/model.gguf of release"),
    ("a link is gone", "failed", "bundle/model.gguf of release"),
    ("another release is current", "failed", "the current release is none"),
    ("the manifest is another", "failed", "belongs to another release"),
    ("the stamp is gone", "failed", "no longer complete"),
    ("it opens no session", "failed", "cannot open an NPU session"),
    ("it is off", "unreachable", "onnect"),
    ("another boot", "failed", "board rebooted after"),
    ("nothing", "ok", "is complete and works"),
]


def test_the_look_after_a_soak_finds_what_became_of_a_board(one: Yard) -> None:
    operation = one.operation("{soak: 30s}")
    journal = begin(operation, one.events.append)
    executor = DeviceExecutor(operation, journal, one.events.append)
    executor.deploy(["b1"], lambda _: True, lambda _: None)
    device = journal.state.devices["b1"]
    found: list[DeviceResult[Any]] = []
    for kind, outcome, words in LOOKS:
        boot, back = device.boot_id, spoil(one, kind)
        device.boot_id = "the one before" if kind == "another boot" else boot
        executor.check([device], found.append)
        back()
        device.boot_id = boot
        assert found[-1].outcome == outcome, (kind, found[-1].text)
        assert words in found[-1].text, kind


def test_a_board_that_was_damaged_in_the_soak_stops_it(
    two: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = two.operation("{canary: b2, soak: 30s}")
    waits: list[float] = []

    def soak(executor: DeviceExecutor, seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:
            (two.base("b2") / "current" / "app" / "bundle" / "model.gguf").unlink()

    monkeypatch.setattr(DeviceExecutor, "wait", soak)
    results = operation.deploy()
    assert outcomes(results) == ["not attempted", "failed"]
    assert results[1].text.startswith("the check after the soak time failed: bundle/model.gguf")
    assert [each.wave for each in results] == ["1", "canary"]
    assert two.contacts("b1") == 0
    (judged,) = [each for each in two.events if isinstance(each, WaveJudged)]
    assert judged.verdict == "stop"
    assert outcomes(go_on(two)) == ["changed", "changed"], "the deploy mends it"
    assert waits == [30.0, 30.0, 30.0]
    looks = [(each["host"], each["outcome"]) for each in two.lines() if each["line"] == "look"]
    assert looks == [("b2", "failed"), ("b2", "ok"), ("b1", "ok")]


def test_resume_wants_the_same_inputs(two: Yard) -> None:
    two.make_sick("b1")
    begun = two.operation("{canary: 1}")
    begun.deploy()
    again = f"fleet deploy --resume {begun.run_id} --force-inputs"
    changes = [
        (two.playbook, "playbook"),
        (two.inventory, "inventory"),
        (two.folder / "bundle" / "model.gguf", "bundle"),
    ]
    for path, words in changes:
        text = path.read_text()
        path.write_text(f"{text}\n")
        with pytest.raises(InputError, match=words) as caught:
            go_on(two)
        assert again in caught.value.hint
        path.write_text(text)
    two.make_sick("b1", sick=False)
    program = two.folder / "llama-bench"  # it is in no list; the release of the run tells
    text = program.read_text()
    program.write_text(f"{text}# new\n")
    results = go_on(two)
    assert outcomes(results) == ["failed", "not attempted"]
    assert "this run deployed" in results[0].text
    assert results[0].error is not None
    assert again in results[0].error.hint
    program.write_text(text)
    assert outcomes(go_on(two)) == ["changed", "changed"]


def test_a_run_that_failed_is_run_again_and_its_records_stay(one: Yard) -> None:
    """The switch was made, the run after it did not count: that is what is unfinished."""
    program = one.folder / "llama-bench"
    counted = 'case "$*" in *" -n 1 "*) ;; *) [ ! -e "$base/../lame" ] || exit 3 ;; esac\n'
    program.write_text(program.read_text().replace("echo '[{", f"{counted}echo '[{{"))
    lame = one.folder / "b1" / "lame"
    lame.parent.mkdir()
    lame.touch()
    (result,) = one.operation(run="auto").deploy()
    assert (result.outcome, result.bytes_sent > 0) == ("failed", True), result.text
    assert "are not valid" in result.text
    lame.unlink()
    (again,) = go_on(one)
    assert (again.outcome, again.bytes_sent) == ("changed", 0)
    assert one.steps()[-2:] == ["prune", "run"]
    folders = sorted(each.name for each in (one.journal().parent / "b1").iterdir())
    assert folders == ["0", "0-2"]
    records = load(one.runs)
    assert [record["counts"] for record in records] == [False, True]


def test_a_deploy_that_died_before_its_first_line_is_the_last_run(
    two: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the older one, which is finished: its bundle was still being read."""
    two.first_release("b1", "b2")
    (older,) = two.runs.root.glob("*/journal.jsonl")
    code, said = two.fleet("deploy", "--resume", "last")
    assert code == 0, said
    died = two.operation()

    def dies(*_: object) -> dict[str, str]:
        raise SystemExit

    monkeypatch.setattr(deploying, "content_hashes", dies)
    with pytest.raises(SystemExit):
        died.deploy()
    assert died.run_id > older.parent.name
    code, said = two.fleet("deploy", "--resume", "last")
    assert code == 2, said
    assert "ended before it changed a device" in said
    assert died.run_id in said
    assert "is finished" not in said
    (first, second) = json.loads(two.fleet("deploy", "--runs", "--json")[1])
    assert (first["run"], first["state"], second["state"]) == (
        died.run_id,
        "not started",
        "finished",
    )


def test_a_deploy_that_is_refused_leaves_no_run(two: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> dict[str, str]:
        raise BundleError("no bundle")

    monkeypatch.setattr(deploying, "content_hashes", refuses)
    with pytest.raises(BundleError):
        two.operation().deploy()
    assert not list(two.runs.root.glob("*"))
