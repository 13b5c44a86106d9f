"""Bare boards: what they lack, and that the real tools can give it to them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.lab import Lab
from fleet.lab.faults import FAULTS


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
    root(bare, "apt-get -q update && apt-get -y -q install qcom-fastrpc1 acl")
    assert "libcdsprpc.so.1" in root(bare, "ldconfig -p")
    assert root(bare, "getent group fastrpc")
    said = bare.exec("lab001", ["udevadm", "trigger"]).stderr
    assert "emulated" in said
    assert login(bare, "stat -c '%a %U:%G' /dev/fastrpc-cdsp-secure").split() == [
        "640",
        "root:fastrpc",
    ]
    assert "user:ubuntu" not in root(bare, "getfacl -p /dev/dma_heap/system")
    assert "group:fastrpc:rw-" in root(bare, "getfacl -p /dev/dma_heap/system")
    assert root(bare, "systemctl show -p LoadState cdsprpcd.service") == "LoadState=loaded"


def test_a_membership_is_in_force_at_the_next_login(bare: Lab) -> None:
    root(bare, "getent group fastrpc || groupadd --system fastrpc; usermod -aG fastrpc ubuntu")
    assert "fastrpc" in login(bare, "id -Gn")


def test_a_reboot_keeps_files_and_applies_rules(bare: Lab) -> None:
    root(bare, "apt-get -q update && apt-get -y -q install qcom-fastrpc1")
    before = login(bare, "cat /proc/sys/kernel/random/boot_id")
    bare.exec("lab001", ["systemctl", "reboot"])
    for _ in range(200):
        after = login(bare, "cat /proc/sys/kernel/random/boot_id")
        if after and after != before:
            break
    assert after
    assert after != before
    assert login(bare, "stat -c '%G' /dev/fastrpc-cdsp").strip() == "fastrpc"


def test_reset_brings_the_factory_back(bare: Lab) -> None:
    root(bare, "groupadd --system more; touch /etc/more")
    bare.reset("lab001")
    assert login(bare, "getent group more; ls /etc/more 2>&1").startswith("ls: cannot access")
    assert login(bare, "stat -c '%a' /dev/fastrpc-cdsp").strip() == "600"


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.bare])
def test_every_fault_of_bare_boards_shows_and_heals(bare: Lab, name: str) -> None:
    shows = {
        "foreign-qnn": "test -e /usr/lib/libQnnHtp.so",
        "old-rule": "grep -q 0600 /etc/udev/rules.d/99-fastrpc-old.rules",
        "repo-gone": "! apt-get -q update 2>/dev/null",
        "broken-dpkg": "dpkg --audit | grep -q acl",
    }
    bare.fault("lab002", name)
    root(bare, shows[name], "lab002")
    bare.heal("lab002", name)
    assert bare.exec("lab002", ["sh", "-c", shows[name]]).returncode != 0


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
        assert said.split() == ["root", "/usr/lib/libcdsprpc.so.1"]
        assert lab.boards[0].user == "root"


def test_sudo_variants(namespaces: None, tmp_path: Path) -> None:
    with Lab.up(tmp_path / "a", count=1, profile="bare-evk-nopasswd", base_port=0) as lab:
        assert login(lab, "sudo -n id -u").strip() == "0"
    with Lab.up(tmp_path / "b", count=1, profile="bare-evk-nosudo", base_port=0) as lab:
        assert login(lab, "command -v sudo || echo none").strip() == "none"
