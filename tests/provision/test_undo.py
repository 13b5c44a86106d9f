"""Every action's way back: the tree of the board is compared before and after."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fleet.model.errors import InputError
from fleet.model.events import Warned
from fleet.model.system import SystemSpec, WantedFile, WantedUnit
from fleet.ops.system.access import ACL

from .conftest import Bare, changes

Make = Callable[..., Bare]
HEAP = "ls -l /dev/dma_heap/system"
UBUNTU = "apt-get -q update && apt-get -y -q install "

SPECS = {
    "everything of a bare board": ("", SystemSpec(fastrpc="auto", packages=("libatomic1",))),
    "packages": ("apt-get -q update", SystemSpec(packages=("qcom-fastrpc-dev", "acl"))),
    "removal": (UBUNTU + "libqnn1", SystemSpec(distribution_qnn="remove")),
    "group": ("", SystemSpec(groups=("npu",))),
    "membership": ("", SystemSpec(members={"video": ("",)})),
    "group and members": ("", SystemSpec(members={"npu": ("", "root")})),
    "rule": ("", SystemSpec(rules={"70-npu.rules": 'KERNEL=="fastrpc-*", MODE="0666"\n'})),
    "replaced rule": (
        "cd /etc/udev/rules.d; echo '#old' > 70-npu.rules; chmod 640 *.rules; chgrp ubuntu *.rules",
        SystemSpec(rules={"70-npu.rules": 'KERNEL=="fastrpc-*", MODE="0666"\n'}),
    ),
    "file": ("", SystemSpec(files=(WantedFile("/etc/npu.conf", b"a\n", "0644"),))),
    "replaced file": (
        "printf 'b' > /etc/npu.conf; chown ubuntu:video /etc/npu.conf; chmod 604 /etc/npu.conf",
        SystemSpec(files=(WantedFile("/etc/npu.conf", b"\0\xff\r\n", "0755"),)),
    ),
    "replaced link": (
        "ln -s 'a; b' /etc/npu.conf",
        SystemSpec(files=(WantedFile("/etc/npu.conf", b"a\n"),)),
    ),
    "loader path": (
        "mkdir -p /opt/npu/lib && cp /lib/x86_64-linux-gnu/libz.so.1 /opt/npu/lib/",
        SystemSpec(library_paths={"npu.conf": ("/opt/npu/lib",)}),
    ),
    "unit": (
        UBUNTU + "qcom-fastrpc1",
        SystemSpec(units=(WantedUnit("cdsprpcd.service", enabled=True, running=True),)),
    ),
    "unit off": (
        UBUNTU + "qcom-fastrpc1 && systemctl enable cdsprpcd && systemctl start cdsprpcd",
        SystemSpec(units=(WantedUnit("cdsprpcd.service", enabled=False, running=False),)),
    ),
    "unversioned library": (
        "ln -s libc.so.6 /usr/lib/x86_64-linux-gnu/libcdsprpc.so.1",
        SystemSpec(fastrpc="auto"),
    ),
}


FAST = ["everything of a bare board", "removal", "membership", "replaced rule", "replaced file"]
FAST += ["replaced link", "loader path", "unit"]


@pytest.mark.parametrize(
    "name", [one if one in FAST else pytest.param(one, marks=pytest.mark.slow) for one in SPECS]
)
def test_undo_restores_the_board(bare: Make, name: str) -> None:
    prepare, spec = SPECS[name]
    board = bare("bare-evk-nopasswd")
    if prepare:
        board.root(prepare)
    before = board.tree()
    done = board.provision(spec)
    assert done.plan.system_steps
    assert done.left.system_steps == ()
    assert board.tree() != before
    listed = board.root(HEAP).split()[0].endswith("+")
    result = board.undo("run1")
    assert result.error is None, result.error
    assert changes(before, board.tree()) == []
    assert listed == (name == "everything of a bare board"), "no part of the mode"
    assert not board.root(HEAP).split()[0].endswith("+")
    assert ACL not in result.text


def test_a_repository_is_taken_away_again(bare: Make) -> None:
    import pysequoia

    from fleet.model.system import Repository

    board = bare("bare-evk-norepo")
    key = board.root("cat /srv/lab-apt/key.asc").encode()
    print_ = pysequoia.Cert.from_bytes(key).fingerprint.upper()
    place = "file:/srv/lab-apt/ubuntu-qcom-iot/qcom-ppa"
    before = board.tree()
    board.provision(SystemSpec(repositories=(Repository("qcom", place, "./", (), key, print_),)))
    assert board.undo("run1").error is None
    assert changes(before, board.tree()) == []


def test_undo_after_a_failure_takes_back_what_was_begun(bare: Make) -> None:
    board = bare("bare-evk-nopasswd")
    before = board.tree()
    result = board.deploy(board.spec(groups=("npu",), packages=("libatomic1", "no-such-package")))
    assert result.outcome == "failed"
    assert "npu" in board.root("getent group")
    assert board.undo("last").error is None
    assert changes(before, board.tree()) == []


def test_an_unknown_run_and_a_damaged_log_are_said(bare: Make) -> None:
    board = bare("bare-evk-nopasswd")
    with pytest.raises(InputError, match="no run 'nope'"):
        board.undo("nope")
    done = board.provision(SystemSpec(groups=("npu",)))
    done.log.path.write_text("{broken\n")
    assert "damaged" in board.undo("run1").text


def test_an_undo_is_played_once(bare: Make) -> None:
    board = bare("bare-evk-nopasswd")
    board.provision(SystemSpec(groups=("npu",)))
    assert board.undo("run1").outcome == "changed"
    assert board.undo("run1").outcome == "unchanged"


def test_a_step_that_fails_keeps_none_of_the_others_from_being_undone(bare: Make) -> None:
    board = bare("bare-evk-nopasswd")
    before = board.tree()
    rules = {"70-npu.rules": 'KERNEL=="fastrpc-*", MODE="0666"\n'}
    board.provision(SystemSpec(groups=("npu",), rules=rules))
    board.root("mv /usr/local/bin/udevadm /root/")  # that of udev finds no daemon
    failed = board.undo("run1")
    assert failed.error is not None
    assert "could not undo: apply udev rules to fastrpc-*" in failed.error.message
    assert "; undone: write /etc/udev/rules.d/70-npu.rules" in failed.error.message
    assert failed.error.hint.startswith(f"fleet undo run1 --limit {board.name}")
    assert "npu:" not in board.root("getent group")
    assert board.root("ls /etc/udev/rules.d") == ""
    board.root("mv /root/udevadm /usr/local/bin/")
    assert board.undo("run1").error is None
    assert changes(before, board.tree()) == []


LISTS = "import os; print(os.listxattr('/dev/dma_heap/system'))"


def test_an_access_list_that_came_by_the_rules_is_taken_back(bare: Make) -> None:
    board = bare("bare-evk-nopasswd")
    before = board.root(f'python3 -c "{LISTS}"')
    board.provision(SystemSpec(fastrpc="auto"))
    if "posix_acl" not in board.root(f'python3 -c "{LISTS}"'):
        pytest.skip("no access lists on this machine's tmpfs")
    assert board.undo("run1").error is None
    assert board.root(f'python3 -c "{LISTS}"') == before


def test_an_access_list_that_no_step_knew_of_is_said(bare: Make) -> None:
    board = bare("bare-evk-nopasswd")
    board.provision(SystemSpec(rules={"70-npu.rules": 'KERNEL=="fastrpc-*", MODE="0666"\n'}))
    board.root(UBUNTU + "acl; setfacl -m g:video:rw /dev/dma_heap/system")
    if "posix_acl" not in board.root(f'python3 -c "{LISTS}"'):
        pytest.skip("no access lists on this machine's tmpfs")
    result = board.undo("run1")
    assert result.text.count(ACL) == 1, result.text
    assert "/dev/dma_heap/system: keeps an access control list" in result.text


def test_an_access_list_that_was_there_is_said_to_stay(bare: Make) -> None:
    board = bare("bare-evk-nopasswd")
    board.root(UBUNTU + "acl; setfacl -m g:video:rw /dev/dma_heap/system")
    if "posix_acl" not in board.root(f'python3 -c "{LISTS}"'):
        pytest.skip("no access lists on this machine's tmpfs")
    board.provision(SystemSpec(fastrpc="auto"))
    result = board.undo("run1")
    assert result.error is None, result.error
    said = [event.text for event in board.events if isinstance(event, Warned)]
    stays = f"fleet does not restore the {ACL} of /dev/dma_heap/system"
    assert any(stays in text for text in said)
    assert len([text for text in said if ACL in text]) == 1, said
    assert stays in result.text
    assert "group:video" in board.root("getfacl -cp /dev/dma_heap/system")
