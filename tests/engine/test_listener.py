"""A listener of the Python API that raises: the caller's error, told once, and no device's."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

import fleet
from fleet.model.events import Event, StepStarted
from fleet.runtimes.store import RuntimeStore
from tests.transport.sshd import running

pytestmark = pytest.mark.qairt


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qairt_store: RuntimeStore) -> Path:
    """A playbook of one file, for boards that are added by the test."""
    (tmp_path / "h").mkdir()
    (tmp_path / "h/runtimes").symlink_to(qairt_store.root)
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "h"))
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle/model.bin").write_bytes(b"x" * 1000)
    (tmp_path / "play.yaml").write_text("name: n\nbundle: {path: bundle, kind: files}\n")
    return tmp_path


def test_a_listener_that_raises_fails_no_board(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Event] = []
    lock = threading.Lock()

    def broken(event: Event) -> None:
        with lock:
            heard.append(event)
        event.no_such_field  # type: ignore[attr-defined]  # noqa: B018 - that is the error

    with (
        running(project / "a") as one,
        running(project / "b") as two,
        caplog.at_level(logging.ERROR, "fleet"),
    ):
        (project / "inv.yaml").write_text(
            "all:\n  vars: {host: 127.0.0.1, soc: QCS9075}\n  hosts:\n"
            + "".join(
                f"    {board.folder.name}: {{port: {board.port}, identity_file: {board.identity}, "
                f"known_hosts: {board.known_hosts}, base_dir: {board.folder}/fleet}}\n"
                for board in (one, two)
            )
        )
        job = fleet.load(project / "inv.yaml", project / "play.yaml", listener=broken)
        results = job.deploy()
        assert [str(one.error) for one in results] == ["None", "None"]
        assert [one.outcome for one in results] == ["changed", "changed"]
        started = {event.host for event in heard if isinstance(event, StepStarted)}
        assert started == {"a", "b"}, "it is asked again after it raised"
        (found,) = caplog.records
        assert "test_a_listener_that_raises" in found.getMessage()
        assert found.exc_info is not None
        assert isinstance(found.exc_info[1], AttributeError)
        caplog.clear()
        assert fleet.diagnose(project / "inv.yaml", limit=["a"], listener=broken)
        assert len(caplog.records) == 1, "once a call"
