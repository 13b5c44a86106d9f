"""Provisioning, reboot and power cut on a machine with its own kernel, systemd and udev.

The CPU is qemu's emulation and the FastRPC node is made in user space: emulated. What is
real here and nowhere else in the tests: udevd and uevents, systemd, a reboot, lost writes.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.engine.applying import apply_system
from fleet.engine.planning import Planned
from fleet.engine.provisioning import system_snapshot
from fleet.engine.releasing import apply_plan
from fleet.engine.session import Session
from fleet.engine.states import ask_state
from fleet.engine.undo import UndoLog
from fleet.engine.undoing import undo
from fleet.facts.gather import gather
from fleet.model.deadline import Deadline
from fleet.model.errors import FleetError, TransferError
from fleet.model.events import Event, Progress
from fleet.model.facts import Facts
from fleet.model.files import FileRef, sha256_file
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest
from fleet.model.plan import Blob, DevicePlan, SendBlobs, StageRelease, SwitchRelease
from fleet.model.system import SystemSpec, WantedUnit
from fleet.ops.release import actions_for

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


def release(folder: Path, text: str) -> Manifest:
    refs = []
    for number in range(8):
        path = folder / f"{text}-{number}"
        path.write_bytes(text.encode() * 40_000 + bytes([number]))
        refs.append(FileRef(path, f"lib/{number}", path.stat().st_size, sha256_file(path)))
    return Manifest("app", tuple(refs), origin={"text": text})


@pytest.mark.parametrize("wait", ["at once", "in the middle of the next upload"])
def test_after_a_power_cut_the_old_or_the_new_release_is_whole(
    machine: Machine, host: Host, tmp_path: Path, wait: str
) -> None:
    """SIGKILL of qemu right after `switch`, or while the next upload runs: what was not synced
    is lost, and `current` still points to a release whose every file has its hash.
    """
    old, new = release(tmp_path, f"old {wait}"), release(tmp_path, f"new {wait}")
    session = Session(host, lambda _: None, accept_new=True)
    session.open()
    facts = gather(session.transport, host, Deadline(60))
    for one in (old, new):
        blobs = tuple(Blob(item) for item in one.blobs.values())
        actions = (SendBlobs(blobs), StageRelease(one), SwitchRelease("app", one.id))
        apply_plan(session, DevicePlan(host, facts, "", one, actions=actions), "run")
    if wait != "at once":
        machine.ssh(
            "(dd if=/dev/urandom of=fleet/store/x.part bs=1M count=200 2>/dev/null &) ; sleep 1"
        )
    machine.kill()
    session.cancel()
    machine.boot()
    current = machine.ssh("readlink fleet/current/app").stdout.strip().rpartition("/")[2]
    assert current in {old.id, new.id}
    live = old if current == old.id else new
    said = machine.ssh(f"cd fleet/releases/app/{current} && sha256sum lib/*").stdout.split("\n")
    found = {line.split()[1]: line.split()[0] for line in said if line}
    assert found == {item.name: item.sha256 for item in live.files}


def test_a_power_cut_in_the_middle_of_a_push(machine: Machine, host: Host, tmp_path: Path) -> None:
    """What was on its way has no name after the boot, and the next push ends it."""
    old = release(tmp_path, "before the push")
    source = tmp_path / "large"
    source.write_bytes(random.Random(1).randbytes(48 << 20))
    item = FileRef(source, "lib/large", source.stat().st_size, sha256_file(source))
    new = Manifest("app", (item,), origin={"text": "large"})
    far = threading.Event()

    def hear(event: Event) -> None:
        if isinstance(event, Progress) and event.done > 16 << 20:
            far.set()

    session = Session(host, hear, accept_new=True)
    session.open()
    facts = gather(session.transport, host, Deadline(60))
    bring(session, facts, old)
    push = threading.Thread(target=bring, args=(session, facts, new, True), daemon=True)
    push.start()
    assert far.wait(120)
    machine.kill()
    session.cancel()
    push.join(60)
    machine.boot()
    store = machine.ssh("cd fleet/store && ls && sha256sum $(ls | grep -v part)").stdout
    named = {line.split()[1]: line.split()[0] for line in store.splitlines() if " " in line}
    assert all(name == sha for name, sha in named.items()), "a name on what was not synced"
    assert item.sha256 not in named
    assert machine.ssh("readlink fleet/current/app").stdout.strip().endswith(old.id)
    again = Session(host, lambda _: None, accept_new=True)
    again.open()
    facts = gather(again.transport, host, Deadline(60))
    for _ in range(2):  # a part that the cut damaged is found by its hash, and sent anew
        with contextlib.suppress(TransferError):
            bring(again, facts, new)
            break
    again.close()
    said = machine.ssh(f"sha256sum fleet/releases/app/{new.id}/lib/large").stdout
    assert said.split()[0] == item.sha256
    assert machine.ssh("readlink fleet/current/app").stdout.strip().endswith(new.id)


def bring(session: Session, facts: Facts, app: Manifest, quiet: bool = False) -> None:
    with contextlib.suppress(*([FleetError] if quiet else [])):
        state = ask_state(session, facts, app)
        actions = actions_for(app, state, 2)
        plan = DevicePlan(session.host, facts, "", app, actions=actions)
        apply_plan(session, plan, "run")
