"""Debian's own libcdsprpc and Qualcomm's AARCH64 libraries on a lab board: true 14001 chains.

The CPU is qemu's and there is no DSP: emulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.config.inventory import load_inventory
from fleet.config.playbook import load_playbook
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.options import DeployOptions
from fleet.lab import Lab
from fleet.lab.arm64 import QEMU, can_run_arm64
from fleet.lab.host import find
from fleet.model.errors import InputError
from fleet.profiles.runs import RunStore
from tests.support_runtime import cached_store

from .conftest import PLAYBOOK, Ward, ids, stock


def test_an_older_kernel_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("fleet.lab.arm64._release", lambda: "6.1.0-13-amd64")
    with pytest.raises(
        InputError, match=r"need Linux 6\.7 or newer, but this computer runs 6\.1"
    ) as error:
        Lab.up(tmp_path / "lab", count=1, kind="arm64", base_port=0)
    assert error.value.exit_code == 2


@pytest.fixture(scope="module")
def arm64(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    why = can_run_arm64()
    if why or find(QEMU) is None:
        pytest.skip(f"no arm64 boards here: {why or 'qemu-user-static is not installed'}")
    root = tmp_path_factory.mktemp("arm64")
    files = stock()
    with Lab.up(root / "lab", count=1, kind="arm64", base_port=0) as lab:
        lab.stock("lab001", files)
        yield Ward(lab, load_inventory(lab.inventory).hosts, RunStore(root / "runs"))


@pytest.mark.qairt
@pytest.mark.root
def test_what_a_program_told_the_system_log_alone_is_told(arm64: Ward) -> None:
    """journalctl is there, and no journal: the log is that of busybox, of no other run yet."""
    said = arm64.silent("python3 -c 'import syslog; syslog.syslog(3, \"apps_dev_init failed\")'")
    assert "apps_dev_init failed" in said


@pytest.mark.qairt
@pytest.mark.root
def test_a_deploy_ends_at_the_true_14001(arm64: Ward) -> None:
    operation = Operation(
        load_playbook(PLAYBOOK),
        arm64.hosts,
        lambda _: None,
        options=DeployOptions(run="never"),
        resources=Resources(cached_store(), arm64.runs),
    )
    (done,) = operation.deploy()
    assert done.outcome == "failed"
    assert "fastrpc_get_cap failed" in str(done.error), "what libcdsprpc told syslog alone"
    assert str(done.error).endswith('Failed to create device: 14001"'), done.error
    said = arm64.lab.exec("lab001", ["sh", "-c", "ls /home/ubuntu/fleet/current; uname -m"])
    assert said.stdout.split() == ["aarch64"], "nothing is live"


@pytest.mark.slow
@pytest.mark.qairt
@pytest.mark.root
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("node-root-only", "fastrpc-node-permission"),
        ("soname-only", "fastrpc-userspace-missing"),
        ("no-shell", "firmware-shell-mismatch"),
        ("stub-other-build", "stub-skel-version-mismatch"),
    ],
)
def test_the_doctor_names_what_is_wrong(arm64: Ward, fault: str, cause: str) -> None:
    with arm64.broken(fault):
        found = arm64.look(folders=("npu",))
    assert ids(found)[0] == cause, ids(found)


@pytest.mark.slow
@pytest.mark.qairt
@pytest.mark.root
def test_nodes_that_open_without_a_dsp(arm64: Ward) -> None:
    """The library tells its errno to syslog alone."""
    found = arm64.look(folders=("npu",))
    assert ids(found)[0] == "fastrpc-open-failed", ids(found)
    assert "errno Function not implemented" in str(found.causes[0].evidence)
