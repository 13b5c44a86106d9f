"""Phones in trouble: the phone's own words arrive, and nothing is half done."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.lab import LabPhones
from fleet.model.errors import DiskFullError, HealthError
from fleet.runtimes.store import RuntimeStore

from .conftest import Desk, Make

PLAYBOOK = """
name: tool
bundle: {{path: {bundle}, kind: files}}
runtime: "2.51.0"
run:
  runner: exec
  program: {program}
  options: {{health: ["{{program}}", "--version"], argv: ["{{program}}"]}}
"""


@pytest.fixture
def playbook(tmp_path: Path) -> Path:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "data").write_bytes(b"x" * 5_000_000)
    program = tmp_path / "tool.sh"
    program.write_text("#!/system/bin/sh\necho works\n")
    path = tmp_path / "tool.yaml"
    path.write_text(PLAYBOOK.format(bundle=bundle, program=program))
    return path


def phone(desk: Make, store: RuntimeStore) -> Desk:
    return desk(store, LabPhones(1, "x86_64", "phone"))


@pytest.mark.qairt
def test_noexec_storage_is_told_by_the_phone_itself(
    desk: Make, qairt_store: RuntimeStore, playbook: Path
) -> None:
    one = phone(desk, qairt_store)
    one.lab.fault("phone001", "noexec-storage")
    (result,) = one.operation(playbook, offline=True).deploy()
    assert isinstance(result.error, HealthError)
    assert "denied" in result.error.message.lower()
    assert one.shell("phone001", "ls /data/local/tmp/fleet/current").strip() == ""
    one.lab.heal("phone001", "noexec-storage")
    (again,) = one.operation(playbook, offline=True).deploy()
    assert again.outcome == "changed"
    assert again.records[0].text == "works\n"


@pytest.mark.qairt
def test_a_disk_that_is_too_small_is_refused_before_a_byte(
    desk: Make, qairt_store: RuntimeStore, playbook: Path
) -> None:
    one = phone(desk, qairt_store)
    one.lab.fault("phone001", "small-data")
    (result,) = one.operation(playbook, offline=True).deploy()
    assert (result.outcome, result.bytes_sent) == ("refused", 0)
    assert result.error is not None
    assert "not enough disk space" in result.error.message


@pytest.mark.qairt
def test_a_disk_that_fills_in_the_middle_says_so(
    desk: Make, qairt_store: RuntimeStore, playbook: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look beforehand was fine; the phone's own reason comes back, and what came stays."""
    monkeypatch.setattr("fleet.engine.deploy.plan.preflight", lambda *_, **__: ())
    one = phone(desk, qairt_store)
    one.lab.fault("phone001", "small-data")
    (result,) = one.operation(playbook, offline=True).deploy()
    assert isinstance(result.error, DiskFullError)
    assert "No space left on device" in result.error.message
    assert one.shell("phone001", "ls /data/local/tmp/fleet/current 2>/dev/null || true") == ""


@pytest.mark.qairt
def test_a_read_only_folder_is_refused(
    desk: Make, qairt_store: RuntimeStore, playbook: Path
) -> None:
    one = phone(desk, qairt_store)
    one.lab.fault("phone001", "read-only")
    (result,) = one.operation(playbook, offline=True).deploy()
    assert result.outcome == "refused"
    assert result.error is not None
    assert "cannot write to /data/local/tmp/fleet" in result.error.message


@pytest.mark.qairt
def test_a_phone_without_tar_gets_the_same_release(
    desk: Make, qairt_store: RuntimeStore, playbook: Path
) -> None:
    one = phone(desk, qairt_store)
    one.lab.fault("phone001", "no-tar")
    (result,) = one.operation(playbook, offline=True).deploy()
    assert (result.outcome, result.error) == ("changed", None)
    one.lab.heal("phone001", "no-tar")
    (again,) = one.operation(playbook, offline=True).deploy()
    assert (again.outcome, again.bytes_sent) == ("unchanged", 0)


@pytest.mark.qairt
def test_what_the_playbook_wants_of_linux_is_skipped_and_said(
    desk: Make, qairt_store: RuntimeStore, playbook: Path
) -> None:
    playbook.write_text(
        playbook.read_text("utf-8")
        + "fastrpc: auto\nsystem: {packages: [libatomic1], members: {fastrpc: ['@login']}}\n"
    )
    one = phone(desk, qairt_store)
    (planned,) = one.operation(playbook, offline=True).plan()
    assert planned.plan is not None
    assert planned.plan.system == 0
    assert not planned.plan.refused
    assert any("are for Linux" in note for note in planned.plan.notes)
    (result,) = one.operation(playbook, offline=True).deploy()
    assert (result.outcome, result.error) == ("changed", None)
