"""Boards of a computer that has neither sshd nor libatomic: with Debian's, out of the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.lab import tools
from fleet.lab.daemon import UserBoard
from fleet.lab.folder import Board, LabFolder
from fleet.lab.host import find
from fleet.model.errors import LabError


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """This computer has neither sshd nor libatomic."""
    monkeypatch.setattr(tools, "find", lambda _: None)
    monkeypatch.setattr(tools, "has_library", lambda _: False)


def made() -> None:
    """Skip where apt cannot fetch the packages."""
    if not find("apt-get"):
        pytest.skip("no apt-get here")
    try:
        tools._folder()
    except LabError as error:
        pytest.skip(f"apt cannot fetch sshd here: {error.message}")


@pytest.mark.usefixtures("bare")
def test_a_board_runs_with_the_sshd_of_the_cache(tmp_path: Path) -> None:
    made()
    folder = LabFolder(tmp_path / "a lab")
    folder.prepare()
    board = Board("lab001", "user", "iq9075", 0, "root", str(folder.board("lab001") / "home"), "")
    folder.prepare_board(board)
    device = UserBoard(board, folder)
    device.listen()
    device.start()
    try:
        device.wait()
        started = Path(f"/proc/{board.pid}/cmdline").read_bytes()
        assert str(tools._place()).encode() in started
        assert (Path(board.home) / "fleet/shim/libatomic.so.1").is_file()
    finally:
        device.power_off()
