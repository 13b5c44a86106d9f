"""Bare lab boards to provision: real sshd, sudo, apt, dpkg, groupadd; a udevadm stand-in."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fleet.config.playbook import load_playbook
from fleet.engine.deploy.apply import apply_and_look
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.deploy.plan import Planned
from fleet.engine.options import DeployOptions
from fleet.engine.pool import DeviceResult
from fleet.engine.session import Session
from fleet.engine.system.provision import system_snapshot
from fleet.engine.system.undo import UndoLog, undo, undo_root
from fleet.facts.gather import gather
from fleet.lab import Lab
from fleet.lab.namespace import can_unshare
from fleet.model.deadline import Deadline
from fleet.model.events import Event
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest
from fleet.model.plan import DevicePlan
from fleet.model.playbook import Playbook
from fleet.model.secret import SecretRef
from fleet.model.system import SystemSpec
from fleet.profiles.runs import RunStore
from fleet.runtimes.store import RuntimeStore

ROOT = Path(__file__).parents[2]
PLAYBOOK = ROOT / "playbooks" / "tiny-genie.yaml"

# What a tree is compared without: logs, caches, locks, backups of passwd and group that
# groupadd writes, dpkg's own backups, fleet's folder and lease; the loader's cache is compared
# by what it lists.
TREE = r"""
import hashlib, os, stat, sys, json
skip = ("/proc", "/sys", "/run", "/tmp", "/var/log", "/var/cache", "/var/lib/apt/lists",
        "/home/ubuntu/fleet", "/home/ubuntu/.sudo_as_admin_successful",
        "/var/lib/dpkg/lock", "/var/lib/dpkg/lock-frontend", "/root/fleet",
        "/var/lib/dpkg/triggers", "/var/lib/apt/extended_states", "/var/lib/sudo", "/dev/pts",
        "/var/lib/dpkg/status", "/var/lib/dpkg/diversions", "/var/lib/dpkg/statoverride",
        "/etc/ld.so.cache", "/var/tmp/fleet-lease")
tree = {}
for top, folders, files in os.walk("/"):
    folders[:] = [f for f in folders if not os.path.join(top, f).startswith(skip)]
    for name in folders + files:
        path = os.path.join(top, name)
        if path.startswith(skip) or path.endswith("-") or path.endswith("-old"):
            continue
        info = os.lstat(path)
        mode = "%o %d:%d" % (info.st_mode, info.st_uid, info.st_gid)
        if stat.S_ISREG(info.st_mode):
            what = hashlib.sha256(open(path, "rb").read()).hexdigest()
        elif stat.S_ISLNK(info.st_mode):
            what = os.readlink(path)
        else:
            what = " ".join(os.listxattr(path)) if stat.S_ISCHR(info.st_mode) else ""
        tree[path] = mode + " " + what
json.dump(tree, sys.stdout)
"""
_PACKAGES = (
    "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n' | grep -v not-installed"
)


@dataclass
class Provisioned:
    """What was planned, what was left to do after it, and the way back."""

    plan: DevicePlan
    left: DevicePlan
    log: UndoLog


def planned(session: Session, spec: SystemSpec) -> Planned:
    """Only the system of the board, as the engine plans it."""
    facts = gather(session.transport, session.host, Deadline(120))
    found = system_snapshot(session, spec, facts)
    plan = DevicePlan(
        session.host, facts, "", Manifest("none", ()),
        findings=found.plan.findings, actions=found.plan.steps, system=len(found.plan.steps),
    )  # fmt: skip
    return Planned(plan, found.become)


@dataclass
class Bare:
    """One bare board, and everything to deploy onto it."""

    lab: Lab
    name: str
    host: Host
    playbook: Playbook
    store: RuntimeStore
    runs: RunStore
    events: list[Event] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def spec(self, **changes: object) -> Playbook:
        """The playbook with a system spec; nothing is run."""
        return replace(self.playbook, system=SystemSpec(**changes), run=None)  # type: ignore[arg-type]

    def operation(self, playbook: Playbook, **options: object) -> Operation:
        return Operation(
            playbook,
            [self.host],
            self.events.append,
            options=DeployOptions(**options),  # type: ignore[arg-type]
            resources=Resources(self.store, self.runs),
        )

    def deploy(self, playbook: Playbook, **options: object) -> DeviceResult[Any]:
        return self.operation(playbook, **options).deploy()[0]

    def plan(self, playbook: Playbook) -> DeviceResult[Any]:
        return self.operation(playbook).plan()[0]

    def provision(self, spec: SystemSpec) -> Provisioned:
        """Only the system: planned and carried out, and looked at again."""
        session = Session(self.host, self.events.append)
        session.open()
        try:
            first = planned(session, spec)
            log = UndoLog(undo_root(self.runs), f"run{next(self.numbers)}", self.name)
            look = partial(planned, session, spec)
            left = apply_and_look(session, first, look, log, allow_reboot=True)
            return Provisioned(first.plan, left.plan, log)
        finally:
            session.close()

    def undo(self, run_id: str) -> DeviceResult[Any]:
        """As `fleet undo`."""
        return undo([self.host], run_id, self.events.append, parallel=1, runs=self.runs)[0]

    def root(self, script: str) -> str:
        """As root of the board, not through ssh."""
        done = self.lab.exec(self.name, ["sh", "-c", script])
        assert done.returncode == 0, f"{script}: {done.stdout}{done.stderr}"
        return done.stdout

    def tree(self) -> dict[str, str]:
        """Every file, folder, link and node with mode, owner and content hash; packages too."""
        done = self.lab.exec(self.name, ["python3", "-c", TREE])
        assert done.returncode == 0, done.stderr
        found: dict[str, str] = json.loads(done.stdout)
        has_dpkg = self.lab.exec(self.name, ["sh", "-c", "command -v dpkg-query"]).returncode == 0
        packages = self.root(_PACKAGES) if has_dpkg else ""
        found["(loader)"] = self.root("ldconfig -p | sort")
        found["(packages)"] = hashlib.sha256(packages.encode()).hexdigest()
        return found


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Paths that differ, for people."""
    paths = sorted({*before, *after})
    return [
        f"{p}: {before.get(p)} -> {after.get(p)}" for p in paths if before.get(p) != after.get(p)
    ]


def host_of(lab: Lab, name: str, **more: object) -> Host:
    board = lab.board(name)
    password = SecretRef(f"file:{lab.folder.root / 'password'}", Path("/"))
    values: dict[str, object] = {
        "name": name,
        "address": "127.0.0.1",
        "port": board.port,
        "user": board.user,
        "identity_files": (lab.folder.identity_file,),
        "known_hosts": lab.folder.known_hosts,
        "become_password": password,
    }
    return Host(**{**values, **more})  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Lab]]:
    """One lab a profile, made when it is first asked for."""
    why = can_unshare()
    if why:
        pytest.skip(f"no namespace boards here: {why}")
    found: dict[str, Lab] = {}

    def lab(profile: str) -> Lab:
        if profile not in found:
            root = tmp_path_factory.mktemp(profile)
            found[profile] = Lab.up(root, count=1, profile=profile, kind="namespace", base_port=0)
        return found[profile]

    yield lab
    for one in found.values():
        one.close()


@pytest.fixture
def bare(
    labs: Callable[[str], Lab], qairt_store: RuntimeStore, tmp_path: Path
) -> Callable[..., Bare]:
    """A board of a profile, as new from the factory."""

    def make(profile: str = "bare-evk", **more: object) -> Bare:
        lab = labs(profile)
        lab.reset("lab001")
        host = host_of(lab, "lab001", **more)
        playbook = load_playbook(PLAYBOOK)
        return Bare(lab, "lab001", host, playbook, qairt_store, RunStore(tmp_path / "runs"))

    return make
