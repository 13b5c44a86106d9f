"""Prune on devices that lack a tool: nothing in use may go."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fleet.model.manifest import Manifest
from tests.transport.windows.board import board_of

from .board import Board, make_files

USED = ("readlink", "find", "rm")
NOT_USED = ("wc", "cat", "ls", "sed", "tr", "grep", "printf", "test", "[")
SHELLS = ("dash", "bash", "busybox", "mksh")
OTHERS = ("mv", "mkdir", "sync", "dash", "bash", "mksh", "busybox")


@pytest.fixture(params=SHELLS)
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Board:
    return board_of(request.param, tmp_path)


@pytest.mark.parametrize(
    "tool", [*USED, *(pytest.param(one, marks=pytest.mark.slow) for one in NOT_USED)]
)
@pytest.mark.parametrize("how", ["no", "dead"])
def test_prune_without_a_tool_never_takes_what_is_in_use(
    board: Board, tmp_path: Path, how: str, tool: str
) -> None:
    """An Android root without `tr` once lost every blob: an empty list of links."""
    releases = [Manifest("app", make_files(tmp_path, {"a": b"%d" % n})) for n in range(4)]
    for one in releases:
        board.deploy(one)
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in (*USED, *NOT_USED, *OTHERS):
        found = shutil.which(name)
        if found and name != tool:
            (folder / name).symlink_to(found)
    if how == "dead":
        (folder / tool).write_text("#!/bin/false\n")
        (folder / tool).chmod(0o755)
    done = board.run("prune", str(board.base), "app", "2", env={"PATH": str(folder)})
    kept = {sha for one in releases[2:] for sha in one.blobs}
    assert kept <= board.store(), done.stderr
    assert board.current == releases[3].id
    assert (board.base / "releases" / "app" / releases[2].id).is_dir()
    if tool in {"sed", "tr", "grep", "ls", "wc"}:
        assert board.store() == kept, done.stderr


@pytest.mark.parametrize("board", [*SHELLS, "python", "windows"], indirect=True)
def test_a_whole_board_is_pruned(board: Board, tmp_path: Path) -> None:
    releases = [Manifest("app", make_files(tmp_path, {"a": b"%d" % n})) for n in range(4)]
    for one in releases:
        board.deploy(one)
    assert board.prune("2").returncode == 0
    assert board.store() == {sha for one in releases[2:] for sha in one.blobs}
