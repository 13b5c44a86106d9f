"""What only the Windows program does with blobs, releases and runs; the rest: tests/ops."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fleet.model.plan import Blob, SendBlobs
from fleet.ops.backend import backend_for, power_lines
from fleet.ops.frames import Files, frames
from tests.ops.board import actions_of, flat, manifest
from tests.ops.test_scripts import CONTENT

from .board import PcBoard


@pytest.fixture
def board(tmp_path: Path) -> PcBoard:
    return PcBoard(tmp_path)


def test_blobs_and_steps_go_in_one_stream(board: PcBoard, tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", {"f": b"1", "bin/tool": b"2", "deep/er/x": b"3"})
    backend = backend_for(board.facts)
    sending = SendBlobs(tuple(Blob(item) for item in app.blobs.values()))
    (turn,) = backend.turns((sending, *actions_of(app)), "r1")
    tail = (step.frame() for step in turn.steps)
    data = flat(frames(turn.blobs, lambda *_: None, backend.style(Files(), {}), tail=tail))
    assert data.startswith(b"files 3 "), "small ones together"
    done = board.do(backend.receive(), data)
    assert done.stdout.splitlines()[-3:] == [b"staged", b"switched", b"pruned"], done
    assert board.current == app.id
    assert board.store() == set(app.blobs)
    env = (board.own / "env.ps1").read_text()
    assert env == "\n".join(power_lines(app, str(board.base))) + "\n"


def test_what_a_killed_switch_left_is_swept_and_no_other(board: PcBoard, tmp_path: Path) -> None:
    first, second = (manifest(tmp_path / text, {"f": text.encode()}) for text in ("1", "2"))
    board.deploy(first)
    current = board.base / "current"
    (current / ".app.new").write_text(first.id + "\n")  # `keep` before its rename
    (current / "app.new").write_text("0" * 16 + "\n")  # a release that is called so
    (board.base / "releases" / "app.new").mkdir()
    board.deploy(second)
    assert board.current == second.id
    assert sorted(path.name for path in current.iterdir()) == ["app", "app.new"]
    assert (current / "app.new").read_text() == "0" * 16 + "\n"


def test_prune_without_a_pointer_removes_nothing(board: PcBoard, tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", CONTENT)
    board.deploy(app)
    (board.base / "current" / "app").write_text("")
    done = board.prune("2")
    assert b"nothing was removed" in done.stdout
    assert board.store() == set(app.blobs)


def test_an_unknown_coding_is_refused(board: PcBoard, tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", {"f": b"data"})
    (blob,) = [Blob(item) for item in app.blobs.values()]
    line = f"{blob.file.sha256} 4 0 444 0 4 zstd 4\n".encode()
    done = board.do(backend_for(board.facts).receive(), line + b"xxxx")
    assert done.returncode == 74
    assert b"failed" in done.stdout
    assert board.store() == set()


def python(code: str) -> tuple[str, ...]:
    return ("python3", "-c", code)


def test_the_path_of_the_release_comes_first(board: PcBoard, tmp_path: Path) -> None:
    code = "import os; print(os.environ['PATH'].split(os.pathsep)[0], 'FLEET_PATH' in os.environ)"
    words = (str(tmp_path / "w"), "", "60", "none", "clean", *python(code))
    done = board.run("run", *words, env={"FLEET_PATH": "/own lib"})
    assert done.stdout == b"/own lib False\n"
    assert not (tmp_path / "w").exists()


def test_the_environment_for_people_is_only_text(tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", {"f": b"1"})
    lines = power_lines(app, "C:/it's")
    assert "$env:ODD = 'it''s; $(id) `x`'" in lines
    assert "$env:LD_LIBRARY_PATH = 'C:/it''s/releases/app/" + app.id + "/lib'" in lines
    assert "Remove-Item Env:DSP_LIBRARY_PATH -ErrorAction SilentlyContinue" in lines
    assert sys.platform != "win32"
