"""Bare boards: what they lack, and that the real tools can give it to them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.lab import Lab
from fleet.lab.debs import LIB
from fleet.lab.lab import FAULTS, SET_UP_FAULTS
from fleet.model.errors import LabError
from tests import warm


@pytest.fixture(scope="module")
def bare(namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab.up(tmp_path_factory.mktemp("bare"), count=2, profile="bare-evk", base_port=0) as lab:
        yield lab


def root(lab: Lab, script: str, name: str = "lab001") -> str:
    done = lab.exec(name, ["sh", "-c", script])
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def login(lab: Lab, script: str, name: str = "lab001") -> str:
    argv = ["ssh", "-F", str(lab.folder.root / "ssh_config"), name, script]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False).stdout


def facts(lab: Lab, name: str = "lab001") -> dict[str, Any]:
    """What `fleet facts` says, by the lab's own ssh_config."""
    root = lab.folder.root
    inventory = root / "inventory.yaml"
    inventory.write_text(
        f"all:\n  hosts:\n    {name}:\n      ssh_config: {root}/ssh_config\n"
        f"      known_hosts: {root}/known_hosts\n"
    )
    done = warm.fleet("facts", "-i", inventory, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)[0]["facts"]
    return found


def sudo(lab: Lab, script: str, name: str = "lab001") -> str:
    """Through ssh and sudo with the lab's password, as a deploy does it."""
    argv = ["ssh", "-F", str(lab.folder.root / "ssh_config"), name]
    done = subprocess.run(
        [*argv, f"sudo -S -p '' sh -c '{script}'"],
        input=lab.folder.password + "\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


# profile, os, SoC, user, live groups, library by its full name
SHOWN = [
    ("bare-evk", "ubuntu 24.04", 676, "ubuntu", ["ubuntu", "sudo"], []),
    ("bare-evk-norepo", "ubuntu 24.04", 676, "ubuntu", ["ubuntu", "sudo"], []),
    ("bare-rb3", "debian 13", 498, "ubuntu", ["ubuntu", "sudo"], []),
    ("bare-radxa", "debian 12", 498, "ubuntu", ["ubuntu", "sudo"], []),
    ("bare-qcom-linux", "qcom-wayland 1.6", 676, "root", ["root"],
     ["/usr/lib/libcdsprpc.so", "/usr/lib/libcdsprpc.so.1"]),
]  # fmt: skip


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown[0])
def test_a_bare_profile_is_what_fleet_facts_shows(
    namespaces: None, tmp_path: Path, shown: tuple[str, str, int, str, list[str], list[str]]
) -> None:
    name, system, soc, user, groups, library = shown
    with Lab.up(tmp_path, count=1, profile=name, base_port=0) as lab:
        found = facts(lab)
        assert f"{found['os_id']} {found['os_version']}" == system
        assert found["soc"]["kernel_soc_id"] == soc
        assert (found["user"]["name"], found["user"]["groups_live"]) == (user, groups)
        nodes = {(one["mode"], one["owner"], one["group"]) for one in found["nodes"]}
        assert nodes == {("600", "root", "root")}
        assert found["libcdsprpc"] == library
        assert found["libatomic"] is bool(library)
        assert found["emulated"] is True
        known = root(lab, "ls /etc/apt/sources.list.d")
        assert known == ("" if name in {"bare-evk-norepo", "bare-qcom-linux"} else "lab.sources")
        assert "PGP PUBLIC KEY" in root(lab, "cat /srv/lab-apt/key.asc")


def test_healthy_is_a_board_that_is_set_up(namespaces: None, tmp_path: Path) -> None:
    with Lab.up(tmp_path, count=1, profile="healthy", base_port=0) as lab:
        found = facts(lab)
        assert "fastrpc" in found["user"]["groups_live"]
        assert {one["open_error"] for one in found["nodes"]} == {""}


def test_up_time_of_bare_boards(
    namespaces: None, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Recorded (also on standard output), not asserted: the machine is shared."""
    with Lab.up(tmp_path / "first", count=1, profile="bare-evk", base_port=0):
        pass
    begin = time.monotonic()
    with Lab.up(tmp_path / "more", count=8, profile="bare-evk", base_port=0) as lab:
        took = time.monotonic() - begin
        assert len(lab.boards) == 8
    record_property("seconds a board", took / 8)
    sys.stdout.write(f"8 bare boards up in {took:.2f} s, {took / 8:.3f} s a board\n")


def test_a_bare_board_has_nothing_of_fastrpc(bare: Lab) -> None:
    assert login(bare, "stat -c '%a %U:%G' /dev/fastrpc-cdsp /dev/dma_heap/system").split() == [
        *("600", "root:root"),
        *("600", "root:root"),
    ]
    assert "fastrpc" not in login(bare, "id; getent group")
    assert root(bare, "ldconfig -p | grep -cE 'cdsprpc|atomic' || true") == "0"
    assert root(bare, "dpkg-query -W libatomic1 2>/dev/null || true") == ""
    assert "Ubuntu 24.04" in login(bare, "cat /etc/os-release")


def test_real_apt_makes_library_group_rule_and_unit(bare: Lab) -> None:
    wanted = "qcom-fastrpc1 qcom-fastrpc-dev acl libatomic1"
    sudo(bare, f"apt-get -q update && apt-get -y -q --no-install-recommends install {wanted}")
    assert "libcdsprpc.so.1" in root(bare, "ldconfig -p")
    argv = "import ctypes; ctypes.CDLL('libcdsprpc.so'); ctypes.CDLL('libatomic.so.1')"
    assert bare.exec("lab001", ["python3", "-c", argv]).stderr == ""
    assert root(bare, "dpkg --audit; apt-get -q check >/dev/null") == ""
    assert "emulated" in root(bare, "dpkg-query -W -f '${Description}' qcom-fastrpc1")
    assert root(bare, "getent group fastrpc")
    nodes = "stat -c %a /dev/fastrpc-cdsp /dev/dma_heap/system"
    sudo(bare, "udevadm control --reload")
    assert root(bare, nodes).split() == ["600", "600"]
    sudo(bare, "udevadm trigger --action=change")
    assert root(bare, nodes).split() == ["600", "600"]
    sudo(bare, "udevadm trigger --action=add --subsystem-match=dma_heap")
    assert root(bare, nodes).split() == ["600", "660"]
    said = sudo(bare, "udevadm trigger --action=add --sysname-match=fastrpc-*")
    assert "emulated" in said
    assert root(bare, nodes).split() == ["664", "660"]
    assert login(bare, "stat -c '%a %U:%G' /dev/fastrpc-cdsp-secure").split() == [
        "640",
        "fastrpc:fastrpc",
    ]
    assert "user:ubuntu" not in root(bare, "getfacl -p /dev/dma_heap/system")
    assert "group:fastrpc:rw-" in root(bare, "getfacl -p /dev/dma_heap/system")
    assert root(bare, "systemctl show -p LoadState cdsprpcd.service") == "LoadState=loaded"


def test_rules_override_by_file_name_and_a_final_value_stays(bare: Lab) -> None:
    bare.reset("lab001")
    mode = "udevadm trigger 2>/dev/null; stat -c %a /dev/fastrpc-cdsp"

    def write(path: str, rule: str) -> str:
        return root(bare, f"mkdir -p {Path(path).parent}; echo '{rule}' > {path}; {mode}")

    assert write("/usr/lib/udev/rules.d/70-x.rules", 'KERNEL=="fastrpc-*", MODE="0644"') == "644"
    assert write("/etc/udev/rules.d/69-x.rules", 'KERNEL=="fastrpc-*", MODE="0640"') == "644"
    assert write("/etc/udev/rules.d/70-x.rules", 'KERNEL=="fastrpc-*", MODE="0604"') == "604"
    assert write("/etc/udev/rules.d/71-x.rules", 'KERNEL=="adsprpc-*", MODE="0666"') == "604"
    assert write("/etc/udev/rules.d/10-x.rules", 'KERNEL=="fastrpc-*", MODE:="0664"') == "664"


def test_units_are_enabled_by_links_and_run_after_a_boot(bare: Lab) -> None:
    bare.reset("lab001")
    unit = "[Service]\\nExecStart=/bin/true\\n[Install]\\nWantedBy=multi-user.target"
    root(bare, f"printf '{unit}\\n' > /etc/systemd/system/own.service")
    root(bare, "printf '[Service]\\nExecStart=/bin/true\\n' > /etc/systemd/system/plain.service")
    state = "systemctl is-enabled {0}; systemctl is-active {0}; true"
    assert root(bare, state.format("own")).split() == ["disabled", "inactive"]
    assert root(bare, state.format("plain")).split() == ["static", "inactive"]
    said = sudo(bare, "systemctl daemon-reload && systemctl enable --now own.service")
    assert "emulated" in said
    assert root(bare, state.format("own")).split() == ["enabled", "active"]
    assert "own.service enabled" in root(bare, "systemctl list-unit-files")
    assert login(bare, "systemctl enable plain 2>&1").endswith("Access denied\n")
    bare.power_cycle("lab001")
    assert root(bare, state.format("own")).split() == ["enabled", "active"]
    sudo(bare, "systemctl disable own && systemctl stop own")
    assert root(bare, state.format("own")).split() == ["disabled", "inactive"]
    shown = root(bare, "systemctl show -p LoadState -p ActiveState no-such.service")
    assert shown.split() == ["LoadState=not-found", "ActiveState=inactive"]


def test_systemd_sysusers_makes_the_groups_of_its_files(bare: Lab) -> None:
    root(bare, "mkdir -p /usr/lib/sysusers.d; echo 'g lab-made -' > /usr/lib/sysusers.d/lab.conf")
    sudo(bare, "systemd-sysusers")
    assert root(bare, "getent group lab-made")


def test_a_membership_is_in_force_at_the_next_login(bare: Lab) -> None:
    root(bare, "getent group fastrpc || groupadd --system fastrpc; usermod -aG fastrpc ubuntu")
    assert "fastrpc" in login(bare, "id -Gn")


def test_a_reboot_keeps_files_and_applies_rules(bare: Lab) -> None:
    root(bare, "apt-get -q update && apt-get -y -q install qcom-fastrpc1")
    before = login(bare, "cat /proc/sys/kernel/random/boot_id")
    assert "emulated" in bare.exec("lab001", ["systemctl", "reboot"]).stderr
    end = time.monotonic() + 60
    after = before
    while after in {"", before} and time.monotonic() < end:
        after = login(bare, "cat /proc/sys/kernel/random/boot_id")
    assert after
    assert after != before
    assert login(bare, "stat -c '%G' /dev/fastrpc-cdsp").strip() == "fastrpc"


def test_reset_brings_the_factory_back(bare: Lab) -> None:
    root(bare, "groupadd --system more; touch /etc/more")
    bare.reset("lab001")
    assert login(bare, "getent group more; ls /etc/more 2>&1").startswith("ls: cannot access")
    assert login(bare, "stat -c '%a' /dev/fastrpc-cdsp").strip() == "600"


# Shell that succeeds on a board with the fault only.
SHOWS = {
    "node-root-only": "",  # bare boards are so
    "no-node": "! test -e /dev/fastrpc-cdsp",
    "no-shell": "! test -e /usr/lib/dsp/cdsp/fastrpc_shell_unsigned_3",
    "full-disk": "! echo more > /home/ubuntu/fleet/x",
    "small-disk": "mountpoint -q /home/ubuntu/fleet",
    "read-only": "! touch /home/ubuntu/fleet/x",
    "full-root": "! echo more > /usr/x && apt-get -q update 2>&1 | grep -q 'No space left'",
    "wrong-soc": "grep -q 9999 /sys/devices/soc0/soc_id",
    "cdsp-offline": "test $(grep -l offline /sys/class/remoteproc/*/state | wc -l) = 2",
    "hot": "grep -q 95000 /sys/class/thermal/thermal_zone3/temp && "
    "grep -q 1200000 /sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq",
    "no-python3": "! python3 -V",
    "no-hash-tool": "! sha256sum /etc/hostname",
    "no-sudo": "! command -v sudo",
    "wrong-group": "id -nG ubuntu | grep -w fastrpc && test $(stat -c %G /dev/fastrpc-cdsp) = root",
    "old-rule": "grep -q 0600 /etc/udev/rules.d/99-fastrpc-old.rules",
    "soname-only": "ldconfig -p | grep -q libcdsprpc.so.1 && ! ldconfig -p | grep 'cdsprpc.so '",
    "foreign-qnn": "test -e /usr/lib/libQnnHtp.so",
    "held-dpkg": "dpkg --configure -a 2>&1 | grep -q 'locked by another process'",
    "broken-dpkg": "dpkg --audit | grep -q acl",
    "repo-gone": "! apt-get -q update",
    "noexec": "cp /bin/true /home/ubuntu/fleet/x && ! /home/ubuntu/fleet/x",
    "no-firmware": "test -e /usr/lib/firmware/qcom/lab.gone",
    "separator": "grep -q 'ADSP_LIBRARY_PATH=.*:' /home/ubuntu/.profile",
    "dsp-path": "grep -q '^export DSP_LIBRARY_PATH' /home/ubuntu/.profile",
}
# What these change is not there on a bare board; tests/doctor shows each with its cause.
ELSEWHERE = {name for name, fault in SET_UP_FAULTS.items() if fault.needs}
QUIET = "exec >/dev/null 2>&1; "


@pytest.mark.parametrize("name", sorted(set(FAULTS) - {"left-group"} - ELSEWHERE))
def test_every_fault_shows_on_a_bare_board_and_heals(bare: Lab, name: str) -> None:
    bare.reset("lab002")
    folders = "/dev /etc/udev /usr/lib/udev /usr/bin /usr/lib/x86_64-linux-gnu /srv/lab-apt"
    tree = f"dpkg-query -W; getent group; find {folders} -printf '%m %u:%g %p\\n'; ldconfig -p"
    before = root(bare, tree, "lab002")
    bare.fault("lab002", name)
    if SHOWS[name]:
        root(bare, QUIET + SHOWS[name], "lab002")
    bare.heal("lab002", name)
    if SHOWS[name]:
        assert bare.exec("lab002", ["sh", "-c", QUIET + SHOWS[name]]).returncode != 0
    after = root(bare, tree, "lab002")
    assert set(after.splitlines()) == set(before.splitlines())


def test_healing_brings_the_rights_that_were_there(bare: Lab) -> None:
    bare.reset("lab002")
    rights = "stat -c '%a %U:%G' /dev/fastrpc-cdsp1"
    root(bare, "chgrp ubuntu /dev/fastrpc-cdsp1; chmod 640 /dev/fastrpc-cdsp1", "lab002")
    for name in ("node-root-only", "no-node"):
        bare.fault("lab002", name)
        bare.heal("lab002", name)
        assert root(bare, rights, "lab002") == "640 root:ubuntu"


def test_a_fault_that_the_board_cannot_have_is_refused(bare: Lab) -> None:
    bare.reset("lab002")
    with pytest.raises(LabError, match="no member of fastrpc"):
        bare.fault("lab002", "left-group")
    root(bare, "groupadd --system fastrpc", "lab002")
    with pytest.raises(LabError, match="in use"):
        bare.fault("lab002", "wrong-group")


def test_soname_only_after_the_packages(bare: Lab) -> None:
    bare.reset("lab002")
    root(bare, "apt-get -q update && apt-get -y -q install qcom-fastrpc-dev", "lab002")
    bare.fault("lab002", "soname-only")
    assert root(bare, f"ls {LIB} | grep cdsprpc", "lab002").split() == [
        *("libcdsprpc.so.1", "libcdsprpc.so.1.0.0", "libcdsprpc.so.gone"),
    ]
    bare.heal("lab002", "soname-only")
    assert root(bare, "dpkg --verify qcom-fastrpc-dev", "lab002") == ""


@pytest.mark.parametrize(
    ("profile", "package"), [("bare-rb3", "libfastrpc1"), ("bare-radxa", "libcdsprpc1")]
)
def test_other_packagings(namespaces: None, tmp_path: Path, profile: str, package: str) -> None:
    with Lab.up(tmp_path, count=1, profile=profile, base_port=0) as lab:
        root(lab, f"apt-get -q update && apt-get -y -q install {package}")
        assert "libcdsprpc.so.1" in root(lab, "ldconfig -p")


def test_a_yocto_board_has_no_package_manager_and_root_logs_in(
    namespaces: None, tmp_path: Path
) -> None:
    with Lab.up(tmp_path, count=1, profile="bare-qcom-linux", base_port=0) as lab:
        said = login(lab, "id -un; command -v apt-get dpkg sudo; ls /usr/lib/libcdsprpc*")
        assert said.split() == ["root", "/usr/lib/libcdsprpc.so", "/usr/lib/libcdsprpc.so.1"]
        assert lab.boards[0].user == "root"


def test_sudo_variants(namespaces: None, tmp_path: Path) -> None:
    with Lab.up(tmp_path / "a", count=1, profile="bare-evk-nopasswd", base_port=0) as lab:
        assert login(lab, "sudo -n id -u").strip() == "0"
    with Lab.up(tmp_path / "b", count=1, profile="bare-evk-nosudo", base_port=0) as lab:
        assert login(lab, "command -v sudo || echo none").strip() == "none"


def test_uptime_counts_from_the_boards_own_boot(bare: Lab) -> None:
    from fleet.lab.namespace import has_clocks

    if not has_clocks():
        pytest.skip("this kernel has no time namespaces: boards show the host's uptime")
    bare.power_cycle("lab001")
    assert float(login(bare, "cat /proc/uptime").split()[0]) < 60
