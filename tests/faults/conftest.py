"""Boards for faults: this machine behind a real sshd, and lab boards with their own boot id."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.lab import Lab
from fleet.lab.namespace import can_unshare
from fleet.model.inventory import Host
from tests.transport.sshd import Sshd, running


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running(tmp_path_factory.mktemp("faulty")) as one:
        yield one


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "base"


@pytest.fixture
def host(server: Sshd, base: Path) -> Host:
    return server.host(base_dir=str(base))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    why = can_unshare()
    if why:
        pytest.skip(f"no namespace boards here: {why}")
    root = tmp_path_factory.mktemp("lab")
    with Lab.up(root, count=1, kind="namespace", base_port=0) as one:
        yield one


@pytest.fixture
def board(lab: Lab) -> Host:
    lab.reset("lab001")
    known = lab.board("lab001")
    return Host(
        name="lab001",
        address="127.0.0.1",
        port=known.port,
        user=known.user,
        identity_files=(lab.folder.identity_file,),
        known_hosts=lab.folder.known_hosts,
    )


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """A tmpfs of its own for a base folder; needs root."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small tmpfs")
    made: list[Path] = []

    def mount(options: str) -> Path:
        place = tmp_path / f"disk{len(made)}"
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
        made.append(place)
        return place

    yield mount
    for place in made:
        subprocess.run(["umount", "-l", str(place)], check=True)


def remount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)
