"""Provisioning and reboot on a machine with its own kernel, systemd and udev.

The CPU is qemu's emulation and the FastRPC node is made in user space: emulated. What is
real here and nowhere else in the tests: uevents of a node (the rest: tests/lab/test_kernel.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.engine.applying import apply_system
from fleet.engine.planning import Planned
from fleet.engine.provisioning import system_snapshot
from fleet.engine.session import Session
from fleet.engine.undo import UndoLog
from fleet.engine.undoing import undo
from fleet.facts.gather import gather
from fleet.model.deadline import Deadline
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest
from fleet.model.plan import DevicePlan
from fleet.model.system import SystemSpec, WantedUnit

from .machine import Machine, key, require

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    require()
    one = Machine(tmp_path_factory.mktemp("vm"))
    one.boot()
    yield one
    one.kill()


@pytest.fixture
def host(machine: Machine, tmp_path: Path) -> Host:
    return Host(
        "vm",
        address="127.0.0.1",
        port=machine.port,
        user="ubuntu",
        identity_files=(key(),),
        known_hosts=tmp_path / "known_hosts",
        connect_timeout=60.0,
    )


def planned(session: Session, spec: SystemSpec) -> Planned:
    facts = gather(session.transport, session.host, Deadline(60))
    found = system_snapshot(session, spec, facts)
    steps = found.plan.steps
    plan = DevicePlan(
        session.host, facts, "", Manifest("none", ()), actions=steps, system=len(steps)
    )
    return Planned(plan, found.become)


def test_real_udev_systemd_and_reboot(machine: Machine, host: Host, tmp_path: Path) -> None:
    spec = SystemSpec(fastrpc="auto", packages=("libatomic1",), reboot=True)
    assert machine.ssh("stat -c '%a %U:%G' /dev/fastrpc-cdsp").stdout.split() == [
        "600",
        "root:root",
    ]
    session = Session(host, lambda _: None, accept_new=True)
    session.open()
    first = planned(session, spec)
    node = next(one for one in first.plan.facts.nodes if one.path == "/dev/fastrpc-cdsp")
    assert (node.open_error, node.mode) == ("EACCES", "600")
    boot = machine.ssh("cat /proc/sys/kernel/random/boot_id").stdout
    apply_system(session, first, UndoLog(tmp_path / "undo", "run1", "vm"), allow_reboot=True)
    assert machine.ssh("cat /proc/sys/kernel/random/boot_id").stdout != boot
    again = planned(session, spec)
    assert again.plan.system_steps == ()
    node = next(one for one in again.plan.facts.nodes if one.path == "/dev/fastrpc-cdsp")
    assert (node.open_error, node.group) == ("", "fastrpc")
    unit = SystemSpec(units=(WantedUnit("cdsprpcd.service", enabled=True, running=True),))
    apply_system(
        session,
        planned(session, unit),
        UndoLog(tmp_path / "undo", "run2", "vm"),
        allow_reboot=False,
    )
    assert machine.ssh(
        "systemctl is-active cdsprpcd; systemctl is-enabled cdsprpcd"
    ).stdout.split() == [
        "active",
        "enabled",
    ]
    assert planned(session, unit).plan.system_steps == ()
    session.close()


def test_undo_under_real_systemd(machine: Machine, host: Host, tmp_path: Path) -> None:
    from fleet.profiles.runs import RunStore

    session = Session(host, lambda _: None, accept_new=True)
    session.open()
    spec = SystemSpec(
        rules={"70-npu.rules": 'KERNEL=="fastrpc-cdsp", MODE="0666"\n'}, groups=("npu",)
    )
    runs = RunStore(tmp_path / "runs")
    before = machine.ssh("stat -c '%a %U:%G' /dev/fastrpc-cdsp; getent group npu || true").stdout
    log = UndoLog(tmp_path / "undo", "run1", "vm")
    apply_system(session, planned(session, spec), log, allow_reboot=False)
    assert machine.ssh("stat -c %a /dev/fastrpc-cdsp").stdout.strip() == "666"
    session.close()
    (result,) = undo([host], "run1", lambda _: None, parallel=1, runs=runs)
    assert result.error is None, result.error
    after = machine.ssh("stat -c '%a %U:%G' /dev/fastrpc-cdsp; getent group npu || true").stdout
    assert after == before
