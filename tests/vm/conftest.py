"""The machine, booted once, as a board to provision."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from fleet.config.playbook import load_playbook
from fleet.engine import session
from fleet.lab import Lab
from fleet.model.deadline import Deadline
from fleet.model.inventory import Host
from fleet.profiles.runs import RunStore
from fleet.runtimes.store import RuntimeStore
from tests.provision.conftest import PLAYBOOK, Bare

from .machine import Machine, key, require


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    require()
    made = Machine(tmp_path_factory.mktemp("vm"))
    made.boot()
    yield made
    made.kill()


@pytest.fixture
def ground(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bare:
    """Its limits are those of an emulated CPU on a busy machine: one twentieth of a board's."""
    monkeypatch.setattr(session, "Deadline", lambda seconds: Deadline(20 * seconds))
    host = Host(
        "vm",
        address="127.0.0.1",
        port=machine.port,
        user="ubuntu",
        identity_files=(key(),),
        known_hosts=machine.known_hosts,
        connect_timeout=120.0,
    )
    store = RuntimeStore(tmp_path / "runtimes")
    runs = RunStore(tmp_path / "runs")
    return Bare(cast("Lab", machine), "vm", host, load_playbook(PLAYBOOK), store, runs)
