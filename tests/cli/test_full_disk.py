"""A full disk of the workstation is said of it, with what became of the board."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.rollout.boards import Yard, yard

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small tmpfs")


def mount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Yard]:
    """A board, and a workstation whose FLEET_HOME is a file system of 4 kB."""
    with yard(tmp_path, 1) as boards:
        boards.home.mkdir()
        mount(boards.home, "size=4k")
        try:
            yield boards
        finally:
            subprocess.run(["umount", "-l", str(boards.home)], check=True)


def pages(home: Path, pattern: str) -> int:
    """What the files of a run take on a tmpfs, kB."""
    sizes = [path.stat().st_size for path in home.glob(f"runs/{pattern}")]
    return 4 * sum(-(-size // 4096) for size in sizes)


@pytest.mark.parametrize("file", ["std", "fleet-looks", "record"])
def test_it_is_said_of_the_workstation(small: Yard, file: str) -> None:
    mount(small.home, "remount,size=1m")
    code, said = small.fleet(*small.deploy_args("--run"))
    assert code == 0, said
    journal = pages(small.home, "*/journal.jsonl") + pages(small.home, ".last-run")
    printed = pages(small.home, "*/b1/0/std*")
    rest = pages(small.home, "*/b1/0/[!s]*")
    shutil.rmtree(small.home / "runs")
    # Room for the journal only; for what the runner printed, too; for all but a page of the record.
    room = {"std": 0, "fleet-looks": printed, "record": printed + rest - 4}[file]
    mount(small.home, f"remount,size={journal + room}k")
    code, said = small.fleet(*small.deploy_args("--run"))
    assert code == 1
    live = small.current("b1")
    assert live, said
    (error,) = [line for line in said.splitlines() if line.startswith("error:")]
    assert error.startswith(f"error: b1: cannot write {small.home}/runs/"), said
    assert f"/b1/0/{file}" in error
    assert "No space left on device" in error
    assert f"release {live} is deployed, but fleet could not save its run" in error
    assert f"try: free disk space: df -h {small.home}/runs/" in said

    mount(small.home, "remount,size=1m")
    code, said = small.fleet("deploy", "--resume", "last")
    assert code == 0, said
    assert "app: run " in said
    assert small.current("b1") == live
