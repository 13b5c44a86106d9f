"""From bare to an opened node on real udev, with the texts of each version of FastRPC's rules.

The nodes are misc devices of the kernel's own and the CPU is qemu's emulation (tests/vm/machine).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.model.events import StepStarted
from fleet.model.facts import Facts
from fleet.model.system import SystemSpec, WantedUnit
from tests.provision.conftest import Bare, changes
from tests.provision.test_become import with_log
from tests.provision.test_random import rounds

from .machine import Machine
from .packages import repository

pytestmark = [pytest.mark.slow, pytest.mark.root]
AUTO = SystemSpec(fastrpc="auto")
NODE, SECURE, HEAP = "/dev/fastrpc-cdsp", "/dev/fastrpc-cdsp-secure", "/dev/dma_heap/system"
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
# All but what changes by itself: names, modes, owners; /etc by content, else by size and time.
TREE = r"""
find / -xdev \( -path /etc -o -path /srv -o -path /home/ubuntu/fleet \
  -o -name .sudo_as_admin_successful -o -path /var/log \
  -o -path /var/cache -o -path /var/tmp -o -path /var/lib/apt -o -path /var/lib/systemd \
  -o -path '/var/lib/dpkg/[!i]*' \) -prune \
  -o -type d -printf '%p\t%m %U:%G\n' -o -printf '%p\t%m %U:%G %s %T@ %l\n'
find /dev \( -path /dev/pts -o -path /dev/shm \) -prune -o -printf '%p\t%m %U:%G\n'
cd /etc; find . ! -name '*-' ! -name ld.so.cache -printf '%p\t%m %U:%G %l\n'
find . -type f ! -name '*-' ! -name ld.so.cache -exec sha256sum {} + \
  | sed -E 's/^(\S+)  (.*)/\2#\t\1/'
dpkg-query -W; ldconfig -p | tr -d '\t'
"""
PURGE = "dpkg --purge lab-image; rm -f /etc/systemd/system/*.wants/*dsprpcd*"
LACKING = "groupdel fastrpc; set /dev/fastrpc-* /dev/dma_heap/*; chmod 600 $*; chown root:root $*"


@dataclass(frozen=True)
class Gives:
    """What a version leaves on the machine: nodes as `stat` says, and whether rules start units."""

    node: str
    secure: str = "600 root:root"
    heap: str = "600 root:root"
    acl: bool = True
    starts: bool = True


VERSIONS = {
    "1.0.4": Gives("640 root:fastrpc", heap="640 root:fastrpc", acl=False, starts=False),
    "1.0.6": Gives("640 root:fastrpc"),
    "1.0.7": Gives("640 root:fastrpc"),
    "1.0.8": Gives("640 root:fastrpc"),
    "ppa": Gives("664 fastrpc:fastrpc", secure="640 fastrpc:fastrpc", starts=False),
}


def right(ground: Bare, path: str) -> str:
    return ground.root(f"stat -c '%a %U:%G' {path}").strip()


def tree(ground: Bare) -> dict[str, str]:
    lines = [line.partition("\t") for line in ground.root(TREE).splitlines()]
    return {name: what for name, _, what in lines}


def acls(ground: Bare, path: str) -> bool:
    return "posix_acl" in ground.root(f"python3 -c 'import os; print(os.listxattr(\"{path}\"))'")


def opens(facts: Facts, path: str) -> bool:
    return next(node for node in facts.nodes if node.path == path).open_error == ""


def test_the_nodes_are_the_kernels_own(ground: Bare) -> None:
    for path, subsystem in ((NODE, "misc"), (SECURE, "misc"), (HEAP, "dma_heap")):
        said = ground.root(f"udevadm info -q property {path}").split()
        assert f"SUBSYSTEM={subsystem}" in said
        assert right(ground, path) == "600 root:root"


@pytest.mark.parametrize("version", VERSIONS)
def test_from_bare_to_an_opened_node_and_back(
    machine: Machine, ground: Bare, tmp_path: Path, version: str
) -> None:
    gives = VERSIONS[version]
    machine.offer(repository(version, tmp_path / "repository"))
    if version == "1.0.4":
        ground.root("dpkg -i /srv/repository/lab-image*.deb")
    before, boot = tree(ground), ground.root(BOOT_ID)
    done = ground.provision(AUTO)
    try:
        assert [found for found in done.plan.findings if found.refuses] == []
        assert ground.root(BOOT_ID) == boot, "without a reboot"
        facts = done.left.facts
        assert opens(facts, NODE), version
        assert opens(facts, HEAP), version
        assert not opens(facts, SECURE) or gives.secure != "600 root:root"
        assert right(ground, NODE) == gives.node
        assert right(ground, SECURE) == gives.secure
        assert acls(ground, HEAP) == gives.acl
        assert gives.acl or right(ground, HEAP) == gives.heap
        active = machine.ssh("systemctl is-active cdsprpcd", check=False).stdout.strip()
        assert active == "active" or not gives.starts
        assert done.left.system_steps == (), "the second run"
    finally:
        result = ground.undo("run1")
    assert result.error is None, result.error
    assert changes(before, tree(ground)) == []
    assert not acls(ground, HEAP)
    if version == "1.0.4":
        ground.root(PURGE)


def test_a_group_that_came_after_udev_had_read_the_rules(
    machine: Machine, ground: Bare, tmp_path: Path
) -> None:
    """udevd knows the groups of when it read the rules, and reads none that did not change."""
    machine.offer(repository("1.0.7", tmp_path / "repository"))
    ground.root("apt-get -y -q install libfastrpc1 fastrpc-support; groupdel fastrpc")
    ground.root("touch /usr/lib/udev/rules.d/60-fastrpc.rules; udevadm control --reload")
    ground.root("groupadd --system fastrpc; chmod 600 /dev/fastrpc-*; chown root:root /dev/fast*")
    done = ground.provision(AUTO)
    said = [event.text for event in ground.events if isinstance(event, StepStarted)]
    assert [text for text in said if "with the udev event change" in text] == []
    assert right(ground, NODE) == VERSIONS["1.0.7"].node
    assert opens(done.left.facts, NODE)
    assert done.left.system_steps == ()
    ground.root(f"apt-get -y -q purge libfastrpc1 fastrpc-support acl; {LACKING}")


# At the boot only, as a mark that comes later says: no event of a running system gives rights.
LATE = """TEST=="/run/lab-late", GOTO="end"
SUBSYSTEM=="misc", KERNEL=="fastrpc-*", KERNEL!="*-secure", GROUP="fastrpc", MODE="0640"
SUBSYSTEM=="dma_heap", GROUP="fastrpc", MODE="0640"
LABEL="end"
"""
MARK = """[Unit]
DefaultDependencies=no
After=systemd-udev-settle.service systemd-modules-load.service
Wants=systemd-udev-settle.service
[Service]
Type=oneshot
ExecStart=/usr/bin/touch /run/lab-late
[Install]
WantedBy=multi-user.target
"""


def test_where_udev_cannot_a_reboot_is_stated_and_made(
    machine: Machine, ground: Bare, tmp_path: Path
) -> None:
    machine.offer(repository("1.0.4", tmp_path / "repository"))
    put = "printf %s {} > {}"
    ground.root("dpkg -i /srv/repository/lab-image*.deb; groupadd --system fastrpc")
    ground.root(put.format(shlex.quote(LATE), "/etc/udev/rules.d/60-late.rules"))
    ground.root(put.format(shlex.quote(MARK), "/etc/systemd/system/late.service"))
    ground.root("systemctl enable late; touch /run/lab-late; udevadm control --reload")
    tried = ground.provision(AUTO)
    assert [found for found in tried.plan.findings if found.refuses] == []
    (said,) = [found for found in tried.left.findings if found.rule == "device-rules-wait"]
    assert said.refuses, "a deploy without leave to reboot"
    assert "reboot" in said.cure
    assert tried.left.system_steps == (), "nothing is planned while it waits"
    boot = ground.root(BOOT_ID)
    made = ground.provision(SystemSpec(fastrpc="auto", reboot=True))
    assert ground.root(BOOT_ID) != boot
    assert opens(made.left.facts, NODE)
    assert opens(made.left.facts, HEAP)
    assert made.left.system_steps == ()
    ground.root("rm /etc/udev/rules.d/60-late.rules; systemctl disable late")
    ground.root(f"{PURGE}; gpasswd -d ubuntu fastrpc; {LACKING}")


def test_units_and_rules_of_the_playbook(machine: Machine, ground: Bare, tmp_path: Path) -> None:
    machine.offer(repository("ppa", tmp_path / "repository"))
    before = tree(ground)
    ground.provision(SystemSpec(fastrpc="auto", packages=("libatomic1",)))
    unit = WantedUnit("cdsprpcd.service", enabled=True, running=True)
    rules = {"70-npu.rules": 'KERNEL=="fastrpc-cdsp", MODE="0666"\n'}
    done = ground.provision(SystemSpec(units=(unit,), rules=rules, groups=("npu",)))
    said = ground.root("systemctl is-active cdsprpcd; systemctl is-enabled cdsprpcd").split()
    assert said == ["active", "enabled"]
    assert right(ground, NODE) == "666 fastrpc:fastrpc"
    assert done.left.system_steps == ()
    for run in ("run2", "run1"):
        assert ground.undo(run).error is None
    assert changes(before, tree(ground)) == []


@pytest.mark.parametrize("seed", range(10))
def test_plan_and_apply_agree_from_20_random_states(
    machine: Machine, ground: Bare, tmp_path: Path, seed: int
) -> None:
    """200 states of a board with real udev, and the rules of Debian's 1.0.7 as they are."""
    machine.offer(repository("1.0.7", tmp_path / "repository"))
    rounds(with_log(ground), 20, seed=100 + seed, packages="libfastrpc1 fastrpc-support")
