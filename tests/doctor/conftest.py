"""A lab board with a release of fleet and a set-up by hand in ~/npu."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.config.inventory import load_inventory
from fleet.config.playbook import load_playbook
from fleet.doctor.examine import Round, examine
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.lease.lease import Lease
from fleet.engine.options import DeployOptions
from fleet.engine.run.start import Placed, probe
from fleet.engine.session import Session
from fleet.lab import Lab
from fleet.lab.namespace import can_unshare
from fleet.model.diagnosis import Diagnosis
from fleet.model.errors import HealthError
from fleet.model.inventory import Host
from fleet.profiles.runs import RunStore
from fleet.runners.base import Start
from fleet.runtimes.select import select_files
from tests.support_runtime import ARM, NEW, cached_runtime, cached_store

ROOT = Path(__file__).parents[2]
PLAYBOOK = ROOT / "playbooks" / "tiny-genie.yaml"
BUNDLE = ROOT / "assets" / "tiny-genie"


def stock(version: str = NEW, target: str = ARM, bundle: Path = BUNDLE) -> dict[str, Path]:
    """A runtime and a bundle, as somebody would copy them."""
    runtime = cached_runtime(version, target)
    files = {one.name: one.source for one in select_files(runtime, target, "v73").files}
    return files | {f"bundle/{one.name}": one for one in bundle.iterdir() if one.is_file()}


@dataclass
class Ward:
    """A lab and its hosts; `look` is one round of the doctor."""

    lab: Lab
    hosts: Sequence[Host]
    runs: RunStore

    def host(self, name: str = "lab001") -> Host:
        return next(one for one in self.hosts if one.name == name)

    def look(self, name: str = "lab001", **how: object) -> Diagnosis:
        (found,) = examine([self.host(name)], lambda _: None, Round(**how))  # type: ignore[arg-type]
        return found

    @contextmanager
    def broken(self, fault: str, name: str = "lab001") -> Iterator[None]:
        self.lab.fault(name, fault)
        try:
            yield
        finally:
            self.lab.heal(name, fault)

    def silent(self, logs: str) -> str:
        """What a failed probe says of a program that tells the system log alone, by `logs`."""
        argv = ("sh", "-c", f"{logs}; echo nothing of it; exit 3")
        session = Session(self.host(), lambda _: None)
        session.open()
        try:
            with Lease(session, "probe"), pytest.raises(HealthError) as caught:
                probe(session, Placed(Start(argv, ""), argv, {}, "/", "/tmp/probe", ()))
        finally:
            session.close()
        return str(caught.value)

    def deploy(self, *names: str) -> None:
        operation = Operation(
            load_playbook(PLAYBOOK),
            [self.host(name) for name in names],
            lambda _: None,
            options=DeployOptions(run="never"),
            resources=Resources(cached_store(), self.runs),
        )
        assert all(one.fine for one in operation.deploy())


def ids(found: Diagnosis) -> list[str]:
    return [one.cause.id for one in found.causes]


@pytest.fixture(scope="session")
def namespaces() -> None:
    why = can_unshare()
    if why:
        pytest.skip(f"no namespace boards here: {why}")


@pytest.fixture(scope="module")
def ward(namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    root = tmp_path_factory.mktemp("ward")
    files = stock()
    with Lab.up(root / "lab", count=2, kind="namespace", base_port=0) as lab:
        hosts = load_inventory(lab.inventory).hosts
        found = Ward(lab, hosts, RunStore(root / "runs"))
        found.deploy("lab001")
        lab.stock("lab001", files)
        yield found
