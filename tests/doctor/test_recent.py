"""The doctor starts from what fleet itself last refused or failed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from fleet.doctor.examine import Round, judge
from fleet.doctor.recent import RunFailure, last_failures, refusal
from fleet.doctor.remedy import names_of, places_of
from fleet.doctor.seen import seen
from fleet.engine.rollout.journal import Journal
from fleet.engine.rollout.lines import BeginLine, EndLine, RunHeader, StepLine
from fleet.engine.rollout.waves import Wave
from fleet.model.diagnosis import BAD, UNCHECKED
from fleet.model.finding import Finding
from fleet.model.inventory import Host
from fleet.model.plain import to_plain
from fleet.model.slots import filled
from fleet.profiles.runs import RunStore

from .test_probe import BOARD, HOST, Fake


def write_run(root: Path, run_id: str, outcome: str, text: str, log: str = "") -> None:
    journal = Journal.begin(
        root / run_id / "journal.jsonl",
        RunHeader(run=run_id, name="m", waves=(Wave("1", ("evk",)),)),
    )
    journal.write(BeginLine(host="evk", wave="1"))
    journal.write(StepLine(host="evk", step="health", text="open an NPU session"))
    journal.write(EndLine(host="evk", outcome=outcome, text=text, hint="fleet plan"))
    journal.close()
    if log:
        (root / run_id / "evk" / "0").mkdir(parents=True)
        (root / run_id / "evk" / "0" / "stderr.log").write_text(log)


def test_the_newest_run_decides(tmp_path: Path) -> None:
    write_run(tmp_path, "20261120-100000-aaaaaa", "failed", "the session did not open", "E 14001\n")
    failed = last_failures(RunStore(tmp_path), ["evk", "other"])
    assert set(failed) == {"evk"}
    assert failed["evk"].text == "the session did not open"
    assert failed["evk"].step == "health"
    assert failed["evk"].hint == "fleet plan"
    assert failed["evk"].log == "E 14001\n"
    write_run(tmp_path, "20261120-110000-aaaaaa", "unchanged", "")
    assert last_failures(RunStore(tmp_path), ["evk"]) == {}


def test_a_damaged_journal_is_passed_over(tmp_path: Path) -> None:
    write_run(tmp_path, "20261120-100000-aaaaaa", "failed", "no space left on device")
    (tmp_path / "20261120-120000-aaaaaa").mkdir()
    (tmp_path / "20261120-120000-aaaaaa" / "journal.jsonl").write_text("{\n{}\n")
    assert set(last_failures(RunStore(tmp_path), ["evk"])) == {"evk"}


def test_a_device_whose_last_run_failed_is_never_healthy() -> None:
    text = "\n".join(BOARD)
    before, _ = judge(Fake(text), Round())  # type: ignore[arg-type]
    failure = RunFailure("20261120-100000-aaaaaa", "run", "the program ended with status 1")
    failures = {before.target: failure}
    after, _ = judge(Fake(text), Round(failures=failures))  # type: ignore[arg-type]
    assert before.verdict == after.verdict == UNCHECKED
    (check,) = [check for check in after.checks if check.id == "last-run"]
    assert "20261120-100000-aaaaaa" in check.text
    assert "ended with status 1" in check.text


def test_a_refusal_is_a_cause_with_the_cure_of_its_rule(playbook_path: Path) -> None:
    from fleet.config.playbook import load_playbook

    finding = Finding(
        "qairt-version", "refuse", "the bundle is newer", "2.47", "2.51", "fleet runtime fetch 2.51"
    )
    check, ranked = refusal(finding, load_playbook(playbook_path), "evk")
    assert check.status == BAD
    assert ranked.fixes[0].title == "fleet runtime fetch 2.51"
    assert json.dumps(to_plain(ranked))


@pytest.fixture
def playbook_path() -> Path:
    return Path(__file__).parents[2] / "playbooks" / "tiny-genie.yaml"


def test_commands_name_the_device_its_release_and_its_folders() -> None:
    host = Host(name="evk 7", address="192.168.7.21", user="ubuntu", port=2222)
    slots = {**names_of(host), "NAME": "tiny", "RELEASE": "/home/ubuntu/fleet/releases/tiny/1"}
    texts = {
        "fleet rollback NAME -i INVENTORY": "fleet rollback tiny -i INVENTORY",
        "ssh -o BatchMode=yes DEVICE true": "ssh -o BatchMode=yes -p 2222 ubuntu@192.168.7.21 true",
        "ssh-copy-id USER@DEVICE": "ssh-copy-id -p 2222 ubuntu@192.168.7.21",
        "ssh-keygen -R DEVICE": "ssh-keygen -R '[192.168.7.21]:2222'",
        "fleet facts --limit DEVICE": "fleet facts --limit 'evk 7'",
        'ls "$RELEASE"/lib': 'ls "/home/ubuntu/fleet/releases/tiny/1"/lib',
    }
    assert {text: filled(text, slots) for text in texts} == texts


def test_a_folder_that_is_not_known_is_never_the_root() -> None:
    done = subprocess.run(
        ["sh", "-c", filled('echo "$RELEASE"/lib', {})], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "/lib" not in done.stdout
    assert "set RELEASE to the folder" in done.stderr


def placed(*names: str) -> dict[str, str]:
    """What commands of fixes get on a board whose release has files of these names."""
    files = [{"name": name, "sha256": "ab" * 32, "size": 7} for name in names]
    body = {"name": "tiny", "env": {}, "unset": [], "origin": {}, "files": files}
    root = "/home/u/fleet/releases/tiny/1"
    release = f"release\ttiny\t0123456789abcdef\t{root}\tyes\nmanifest\t{json.dumps(body)}"
    return places_of(seen("\n".join(BOARD).replace("\nend", f"\n{release}\nend"), HOST))


def test_the_folder_of_the_model_is_that_in_the_release() -> None:
    names = placed("lib/libQnnHtp.so", "bundle/model.bin")
    assert names["RELEASE"] == "/home/u/fleet/releases/tiny/1"
    assert names["BUNDLE"] == "/home/u/fleet/releases/tiny/1/bundle"
    assert names["NAME"] == "tiny"
    assert names["HOST"] == HOST.name


def test_no_name_of_a_file_becomes_a_command() -> None:
    names = placed('bundle"; reboot #/model.bin', "model$(id)/x.bin")
    assert names["BUNDLE"] == names["RELEASE"]
