"""Lab phones with a real adbd (as root), for deploys over adb."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleet.config.inventory import load_inventory
from fleet.config.playbook import load_playbook
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.options import DeployOptions
from fleet.lab import Lab, LabPhones
from fleet.lab.namespace import can_unshare
from fleet.model.events import Event
from fleet.model.inventory import Host
from fleet.profiles.runs import RunStore
from fleet.runtimes.store import RuntimeStore

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def namespaces() -> None:
    why = can_unshare()
    if why:
        pytest.skip(f"no lab phones with a real adbd here: {why}")


@dataclass
class Desk:
    """Devices, a store and records of one test."""

    lab: Lab
    hosts: Sequence[Host]
    store: RuntimeStore
    runs: RunStore
    events: list[Event] = field(default_factory=list)

    def operation(self, playbook: Path, **changes: object) -> Operation:
        return Operation(
            load_playbook(playbook),
            self.hosts,
            self.events.append,
            options=DeployOptions(**changes),  # type: ignore[arg-type]
            resources=Resources(self.store, self.runs),
        )

    def shell(self, name: str, script: str) -> str:
        """As root, not over adb."""
        done = self.lab.exec(name, ["sh", "-c", script])
        assert done.returncode == 0, done.stderr
        return done.stdout


Make = Callable[..., Desk]
ONE = LabPhones(1, kind="phone")


@pytest.fixture
def desk(namespaces: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
    labs: list[Lab] = []

    def make(store: RuntimeStore, phones: LabPhones = ONE, boards: int = 0) -> Desk:
        kind = "namespace" if boards else "auto"
        lab = Lab.up(
            tmp_path / f"lab{len(labs)}", base_port=0, count=boards, kind=kind, phones=phones
        )
        labs.append(lab)
        hosts = load_inventory(lab.inventory).hosts
        return Desk(lab, hosts, store, RunStore(tmp_path / "runs"))

    yield make
    for lab in labs:
        lab.close()
