"""Another user of the same board, who means no good."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fleet.lab import Lab
from fleet.model.errors import FleetError
from fleet.model.inventory import Host

from .app import deploy, small


@pytest.fixture
def mallory(lab: Lab, board: Host) -> Lab:
    made = lab.exec("lab001", ["useradd", "-m", "-s", "/bin/sh", "mallory"])
    assert made.returncode == 0, made.stderr
    return lab


def as_mallory(lab: Lab, script: str) -> subprocess.CompletedProcess[str]:
    return lab.exec("lab001", ["su", "mallory", "-c", script])


def test_nothing_of_a_deploy_can_be_written_by_another_user(
    mallory: Lab, board: Host, tmp_path: Path
) -> None:
    home = f"/home/{board.user}"
    mallory.exec("lab001", ["chmod", "755", home])
    work = ("sh", "-c", '[ "$(stat -c %a "$1")" = 700 ]', "x", "{work}")
    deploy(board, small(tmp_path / "src", "n", health=work))
    found = as_mallory(
        mallory, f"find {home}/fleet ! -type l -writable; find {home}/fleet -perm /6022 ! -type l"
    )
    assert found.stdout == ""
    for attack in (
        f"ln -s /etc/passwd {home}/fleet/store/{'a' * 64}.part",
        f"ln -sfn /tmp {home}/fleet/current/app",
        f"echo x >> {home}/fleet/history/app",
        f"mv {home}/fleet/store {home}/fleet/gone",
        f"rm -rf {home}/fleet/releases",
    ):
        assert as_mallory(mallory, attack).returncode != 0, attack
    assert deploy(board, small(tmp_path / "src", "n", health=work)).payload_bytes == 0


def test_a_folder_for_leases_that_is_a_planted_link_is_not_followed(
    mallory: Lab, board: Host, tmp_path: Path
) -> None:
    done = as_mallory(
        mallory, "mkdir -m 777 /tmp/trap && rm -rf /var/tmp/fleet-lease && "
                 "ln -s /tmp/trap /var/tmp/fleet-lease"
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with pytest.raises(FleetError, match="symbolic link"):
        deploy(board, small(tmp_path / "src", "n"))
    assert mallory.exec("lab001", ["ls", "-A", "/tmp/trap"]).stdout == ""


def test_a_base_folder_that_another_user_made_first_is_not_written_to(
    mallory: Lab, board: Host, tmp_path: Path
) -> None:
    from dataclasses import replace

    as_mallory(mallory, "mkdir -p /tmp/shared/fleet && ln -s /home /tmp/shared/fleet/store")
    with pytest.raises(FleetError):
        deploy(replace(board, base_dir="/tmp/shared/fleet"), small(tmp_path / "src", "n"))
    assert mallory.exec("lab001", ["find", "/tmp/shared", "-user", board.user or ""]).stdout == ""
