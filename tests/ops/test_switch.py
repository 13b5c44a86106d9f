"""The switch with the tools that devices have: one rename, read back, killed anywhere, swept."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fleet.model.manifest import Manifest
from tests.toolsets import TOYBOXES, toolset

from .board import Board, manifest

# Tools, and the shell beside them. Phones have mksh and toybox.
CAN = (
    ("coreutils", "dash"),
    ("coreutils", "mksh"),
    ("busybox", "busybox"),
    ("busybox-bullseye", "mksh"),
    *((toybox, shell) for toybox in TOYBOXES for shell in ("mksh", "dash")),
)
CANNOT = ("busybox-bullseye", "busybox")  # 1.30: no mv -T, and its ln removes first
_CREATE, _DELETE, _MOVED_FROM, _MOVED_TO = 0x100, 0x200, 0x40, 0x80  # sys/inotify.h


def board_with(tools: tuple[str, str], folder: Path) -> Board:
    """No tool of this machine comes before those."""
    board = Board(folder, "dash")
    board.tools = toolset(tools[0], folder / "applets", tools[1])
    board.shell = [str(board.tools / "sh")]
    return board


@pytest.fixture(params=(*CAN, ("python",)), ids="+".join)
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Board:
    if request.param == ("python",):
        return Board(tmp_path, "python")
    return board_with(request.param, tmp_path)


def app(folder: Path, text: str) -> Manifest:
    return manifest(folder / text, {"model": text.encode()})


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


@contextmanager
def watched(folder: Path) -> Iterator[list[tuple[int, str]]]:
    """What happens to the names in a folder, as the kernel tells it."""
    libc = ctypes.CDLL(None, use_errno=True)
    eye = libc.inotify_init1(os.O_NONBLOCK)
    mask = _CREATE | _DELETE | _MOVED_FROM | _MOVED_TO
    assert libc.inotify_add_watch(eye, os.fsencode(folder), mask) >= 0
    seen: list[tuple[int, str]] = []
    try:
        yield seen
        data = os.read(eye, 1 << 16)
        while data:
            _, what, _, length = struct.unpack_from("iIII", data)
            seen.append((what, data[16 : 16 + length].rstrip(b"\0").decode()))
            data = data[16 + length :]
    finally:
        os.close(eye)


def test_each_switch_is_one_rename(board: Board, tmp_path: Path) -> None:
    one, two, three = (app(tmp_path, text) for text in ("one", "two", "three"))
    board.deploy(one)
    for new in (two, three):
        with watched(board.base / "current") as seen:
            board.deploy(new)
        assert [what for what, name in seen if name == "app"] == [_MOVED_TO], seen
        assert (board.base / "current/app/model").read_bytes() == new.files[0].source.read_bytes()
    with watched(board.base / "current") as seen:
        assert board.switch(two).returncode == 0
    assert [what for what, name in seen if name == "app"] == [_MOVED_TO], seen
    assert (board.base / "current/app").readlink() == Path(f"../releases/app/{two.id}")
    assert board.state(two).previous == three.id
    assert names(board.base / "current") == ["app"]


def test_without_a_tool_for_it_nothing_changes_and_it_says_so(tmp_path: Path) -> None:
    able = Board(tmp_path, "dash")
    one, two = app(tmp_path, "one"), app(tmp_path, "two")
    able.deploy(one)
    board = board_with(CANNOT, tmp_path)
    for blob in two.files:
        (board.base / "store" / blob.sha256).write_bytes(blob.source.read_bytes())
    assert board.stage(two).returncode == 0
    with watched(board.base / "current") as seen:
        done = board.switch(two)
        (board.base / "current/end").touch()
    assert done.returncode == 74
    assert done.stderr.startswith(b"mv: invalid option -- 'T'")
    assert done.stderr.endswith(b"no tool here puts a link in the place of another in one rename\n")
    assert not [what for what, name in seen if name == "app"], seen
    assert board.current == one.id
    assert names(board.base / "current") == ["app", "end"]
    assert board.state(two).history == (one.id,)


KILLER = """#!/bin/sh
read n < {count}; n=$((n + 1)); echo $n > {count}
if [ $n = {at} ] && [ {when} = before ]; then kill -KILL $PPID; exit 1; fi
{tool} "$@"; rc=$?
if [ $n = {at} ]; then kill -KILL $PPID; fi
exit $rc
"""
TOOLS = ("cat", "find", "ln", "mv", "readlink", "rm", "sync")


def armed(board: Board, folder: Path, at: int, when: str) -> Path:
    """A folder for the front of PATH: at the `at`-th call of a tool the shell that made it is
    killed, before the tool or after it.
    """
    place = folder / f"killers-{at}-{when}"
    place.mkdir()
    (place / "count").write_text("0\n")
    for tool in TOOLS:
        own = board.tools / tool
        real = own if own.exists() else shutil.which(tool)
        text = KILLER.format(tool=real, at=at, when=when, count=place / "count")
        (place / tool).write_text(text)
        (place / tool).chmod(0o755)
    return place


@pytest.mark.parametrize(
    "tools", [CAN[0], *((toybox, shell) for toybox, shell in CAN if shell == "mksh")], ids="+".join
)
def test_killed_before_and_after_every_tool(tools: tuple[str, str], tmp_path: Path) -> None:
    board = board_with(tools, tmp_path)
    one, two = app(tmp_path, "one"), app(tmp_path, "two")
    board.deploy(one)
    board.deploy(two)
    seen = set()
    for at in range(1, 40):
        for when in ("before", "after"):
            assert board.switch(one).returncode == 0
            assert board.current == one.id
            front = armed(board, tmp_path, at, when)
            own, board.tools = board.tools, Path(f"{front}:{board.tools}")
            done = board.switch(two)
            board.tools = own
            assert board.current in {one.id, two.id}
            seen.add((done.returncode, board.current == two.id))
            assert board.switch(two).returncode == 0
            assert names(board.base / "current") == ["app"], "what the kill left is swept"
            assert board.state(two).previous == one.id
        if int((front / "count").read_text()) < at:
            break
    assert {(-9, False), (-9, True), (0, True)} <= seen
    assert at > len(TOOLS)


def test_what_a_killed_ln_left_is_swept_and_no_other(board: Board, tmp_path: Path) -> None:
    """toybox's ln links under NAME_XXXXXX, first made as an empty file, and renames (strace)."""
    one, two = app(tmp_path, "one"), app(tmp_path, "two")
    board.deploy(one)
    current = board.base / "current"
    (current / "app_DLkNqv").symlink_to(f"../releases/app/{one.id}")
    (current / "app_0aZ9bY").touch()
    (current / ".app.r0").symlink_to(f"../releases/app/{one.id}")
    (current / "app_second").symlink_to("../releases/app_second/" + "0" * 16)
    (current / ".app.x.r1").symlink_to("../releases/app.x/" + "0" * 16)
    board.deploy(two)
    assert names(current) == [".app.x.r1", "app", "app_second"]


def test_a_switch_that_is_only_said_is_an_error(tmp_path: Path) -> None:
    board = board_with(("coreutils", "dash"), tmp_path)
    one, two = app(tmp_path, "one"), app(tmp_path, "two")
    board.deploy(one)
    (board.tools / "mv").unlink()
    (board.tools / "mv").write_text(
        '#!/bin/sh\ncase $* in *-T*) exit 0 ;; esac\nexec /bin/mv "$@"\n'
    )
    (board.tools / "mv").chmod(0o755)
    with pytest.raises(AssertionError, match=f"leads to ../releases/app/{one.id} and not to"):
        board.deploy(two)
    assert board.current == one.id
    assert board.state(two).history == (one.id,)


@pytest.mark.parametrize("tools", CAN, ids="+".join)
def test_a_folder_in_the_place_of_the_link_is_left(tools: tuple[str, str], tmp_path: Path) -> None:
    board = board_with(tools, tmp_path)
    one = app(tmp_path, "one")
    (board.base / "current/app").mkdir(parents=True)
    with pytest.raises(AssertionError):
        board.deploy(one)
    assert (board.base / "current/app").is_dir()
    assert not names(board.base / "current/app")
    assert names(board.base / "current") == ["app"]
