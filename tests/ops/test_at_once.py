"""Stage, switch and prune in one command: each only behind the end of the one before."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from fleet.model.errors import DeviceError
from fleet.model.facts import Facts
from fleet.model.manifest import Manifest
from fleet.model.plan import Action, Blob
from fleet.ops.backend import backend_for
from fleet.ops.upload import Receipt

from .board import SHELLS, Board, actions_of, manifest, ordered

DONE = {"stage", "switch", "prune"}
OLD = {"f": b"old", "gone": b"1"}
NEW = {"f": b"new", "lib/two": b"2", "lib/deep/three": b"3" * 3000}


@pytest.fixture(params=[kind for kind in SHELLS if "+tar" in kind])
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Board:
    return Board(tmp_path, request.param)


def brought(board: Board, root: Path, content: dict[str, bytes]) -> Manifest:
    """Its blobs are there."""
    app = manifest(root, content)
    board.send([Blob(item) for item in app.blobs.values()])
    return app


def run(board: Board, app: Manifest, cut: int | None = None) -> Receipt:
    command, data = ordered(board.facts, actions_of(app))
    done = board.argv(command.argv, data[:cut])
    receipt = Receipt()
    receipt.take(done.stdout)
    assert (done.returncode == 0) == (receipt.done == DONE), done
    return receipt


def after(board: Board, tmp_path: Path) -> tuple[Manifest, Manifest]:
    """The old one is live, and the blobs of the new one are there."""
    old = brought(board, tmp_path / "old", OLD)
    assert run(board, old).done == DONE
    assert board.current == old.id
    return old, brought(board, tmp_path / "new", NEW)


def test_all_three_are_done_and_told(board: Board, tmp_path: Path) -> None:
    old, new = after(board, tmp_path)
    assert (run(board, new).done, board.current) == (DONE, new.id)
    rel = board.base / "releases" / "app" / new.id
    names = {str(path.relative_to(rel)) for path in rel.rglob("*") if not path.is_dir()}
    assert names == {*NEW}
    assert board.state(new).previous == old.id
    assert (run(board, new).done, board.current) == (DONE, new.id), "again"


def test_a_stream_that_was_cut_changes_nothing(board: Board, tmp_path: Path) -> None:
    """Also between two files of the archive, where some tar see its end."""
    old, new = after(board, tmp_path)
    _, data = ordered(board.facts, actions_of(new))
    end = data.index(b"end\0")
    for cut in (*range(0, end + 1, 512), 700, end - 100, end - 1):
        receipt = run(board, new, cut)
        assert (receipt.done, board.current) == (set(), old.id), cut
        assert not (board.base / "releases" / "app" / new.id).exists()
    assert run(board, new).done == DONE


def test_a_blob_that_is_gone_ends_it(board: Board, tmp_path: Path) -> None:
    old, new = after(board, tmp_path)
    (board.base / "store" / new.files[0].sha256).unlink()
    receipt = run(board, new)
    assert (receipt.done, board.current) == (set(), old.id)
    steps = backend_for(board.facts).turns(actions_of(new), "r1")[0].steps
    with pytest.raises(DeviceError, match=r"stage failed: blob \w+ is gone") as caught:
        receipt.check_steps(steps, "board", "blob x is gone")
    assert caught.value.step == "stage"


def test_a_release_that_was_staged_before_is_not_switched_to(board: Board, tmp_path: Path) -> None:
    """Its folder is whole, and one of its blobs has gone since."""
    old, new = after(board, tmp_path)
    assert board.stage(new).returncode == 0
    (board.base / "store" / new.files[0].sha256).unlink()
    assert (run(board, new).done, board.current) == (set(), old.id)


def test_a_switch_that_fails_prunes_nothing(board: Board, tmp_path: Path) -> None:
    old, new = after(board, tmp_path)
    if "busybox" in board.shell[0]:
        pytest.skip("its own mv cannot be put aside")
    board.tools.mkdir()
    move = board.tools / "mv"
    move.write_text(
        f'#!/bin/sh\ncase $2 in */history/*) exit 1 ;; esac\nexec {shutil.which("mv")} "$@"\n'
    )
    move.chmod(0o755)
    (board.base / "history" / "app").write_text("")  # then its line is written before the rename
    assert run(board, new).done == {"stage"}
    assert board.current == old.id
    assert (board.base / "store" / old.files[0].sha256).exists()


def test_pruning_that_fails_leaves_the_new_release(board: Board, tmp_path: Path) -> None:
    new = brought(board, tmp_path / "new", NEW)
    if "busybox" in board.shell[0]:
        pytest.skip("its own find cannot be put aside")
    board.tools.mkdir()
    find = board.tools / "find"
    find.write_text(f'#!/bin/sh\n[ "$1" = -L ] || exit 1\nexec {shutil.which("find")} "$@"\n')
    find.chmod(0o755)
    receipt = run(board, new)
    assert (receipt.done, board.current) == ({"stage", "switch"}, new.id)


def test_when_they_go_together(board: Board, tmp_path: Path) -> None:
    actions = actions_of(manifest(tmp_path / "src", NEW))

    def names(facts: Facts, some: Sequence[Action]) -> list[list[str]]:
        return [[step.name for step in turn.steps] for turn in backend_for(facts).turns(some, "r")]

    assert names(board.facts, actions) == [["stage", "switch", "prune"]]
    assert names(board.facts, actions[:1]) == [["stage"]], "nothing is switched"
    without = names(board.without(tar=False), actions)
    assert without == [["stage"], ["switch", "prune"]], "no end to be seen"
