"""What fleet keeps of its own on the workstation is for its user alone, whatever the umask."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.model.home import open_private, private_folder
from tests.transport.sshd import Sshd

from .conftest import PLAYBOOK, ROOT, Bench

SDK = {"runtimes", "packages"}  # Qualcomm's files keep the modes that they came with


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def wide(home: Path) -> list[str]:
    """What others may read or enter, and how."""
    found = [home, *(one for one in home.rglob("*") if SDK.isdisjoint(one.parts))]
    return [
        f"{one.relative_to(home.parent)} {stat.S_IMODE(one.stat().st_mode):o}"
        for one in found
        if not one.is_symlink() and one.stat().st_mode & 0o077
    ]


def fleet(home: Path, *words: object) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import os; os.umask(0); from fleet.cli.main import main; main()"]
        + [str(word) for word in words],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, "FLEET_HOME": str(home)},
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.qairt
def test_after_a_real_deploy_nobody_else_can_look_in(
    bench: Bench, board_server: Sshd, tmp_path: Path, home: Path
) -> None:
    for folder, was in ((home, 0o777), (home / "runs", 0o755), (home / "devices", 0o770)):
        folder.mkdir()
        folder.chmod(was)
    inventory = tmp_path / "inventory.yaml"
    host = board_server.host()
    inventory.write_text(
        f"all:\n  hosts:\n    board: {{host: 127.0.0.1, port: {host.port}, user: {host.user},\n"
        f"      identity_file: {host.identity_files[0]}, known_hosts: {host.known_hosts},\n"
        f"      base_dir: {bench.base}, soc: QCS9075}}\n"
    )
    playbook = tmp_path / "playbook.yaml"
    playbook.write_text(PLAYBOOK.read_text().replace("../assets", str(ROOT / "assets")))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "small").write_text("x")
    os.utime(tmp_path / "data" / "small", (10**9, 10**9))
    (home / "runtimes").symlink_to(bench.store.root)
    mode = bench.store.root.stat().st_mode
    fleet(home, "push", tmp_path / "data", "-i", inventory)
    fleet(home, "deploy", playbook, "-i", inventory)
    fleet(home, "profiles", "list")
    made = {one.name for one in home.iterdir()}
    assert {"runs", "trees", "devices", "profiles.db"} <= made
    assert list(home.rglob("journal.jsonl"))
    assert list(home.rglob("record.json"))
    assert wide(home) == []
    assert bench.store.root.stat().st_mode == mode, "what a link leads to is not ours"


def test_a_folder_is_made_private_below_the_home_alone(home: Path, tmp_path: Path) -> None:
    umask = os.umask(0o002)
    try:
        private_folder(home / "a" / "b")
        private_folder(tmp_path / "elsewhere" / "c")
        for path in (home / "file", tmp_path / "elsewhere" / "file"):
            open_private(path).close()
    finally:
        os.umask(umask)
    assert wide(home) == []
    assert stat.S_IMODE((tmp_path / "elsewhere" / "c").stat().st_mode) == 0o775
    assert stat.S_IMODE((tmp_path / "elsewhere" / "file").stat().st_mode) == 0o664


def test_a_file_in_the_place_of_a_folder_is_an_error(home: Path) -> None:
    home.mkdir()
    (home / "runs").write_text("x")
    with pytest.raises(FileExistsError):
        private_folder(home / "runs")
    with pytest.raises(NotADirectoryError):
        private_folder(home / "runs" / "x")


@pytest.mark.parametrize("mode", [0o1777, 0o1775])
def test_a_shared_folder_as_home_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """`FLEET_HOME=/tmp` as root: the others of the machine still need it."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    monkeypatch.setenv("FLEET_HOME", str(shared))
    private_folder(shared / "runs" / "r")
    assert stat.S_IMODE(shared.stat().st_mode) == mode
    assert stat.S_IMODE((shared / "runs").stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder away")
def test_the_folder_of_somebody_else_stays_as_it_is(home: Path) -> None:
    home.mkdir()
    os.chown(home, 4711, 4711)
    home.chmod(0o755)
    private_folder(home / "runs")
    assert stat.S_IMODE(home.stat().st_mode) == 0o755


UNPRIVILEGED = """
import os, sys
from pathlib import Path
from fleet.model.errors import WorkstationError
from fleet.model.home import kept
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
path = Path(sys.argv[1])
try:
    with kept(path):
        path.mkdir()
except WorkstationError as error:
    print(error.message, error.hint, sep=chr(10))
"""


def test_a_folder_that_cannot_be_entered_is_an_error_of_the_workstation(tmp_path: Path) -> None:
    """Until Python 3.11 `Path.exists` itself raises there."""
    locked = tmp_path / "locked"
    (locked / "inner").mkdir(parents=True)
    locked.chmod(0)
    try:
        done = subprocess.run(
            [sys.executable, "-c", UNPRIVILEGED, str(locked / "inner" / "runs")],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        locked.chmod(0o700)
    assert done.returncode == 0, done.stderr
    message, hint = done.stdout.splitlines()
    assert message == f"cannot write {locked}/inner/runs on this workstation: Permission denied"
    assert hint.startswith("check the permissions: ls -ld /")
