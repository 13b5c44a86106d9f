"""Blobs and releases by the Windows program, on real files of this system."""

from __future__ import annotations

import hashlib
import os
import random
import sys
import threading
from pathlib import Path

import pytest

from fleet.model.plan import Blob, SendBlobs, StageRelease
from fleet.ops.backend import backend_for, power_lines
from fleet.ops.frames import Files, frames
from fleet.ops.release import actions_for
from tests.ops.board import actions_of, flat, manifest
from tests.ops.test_scripts import (
    CONTENT,
    test_a_changed_part_is_found_and_sent_again,
    test_a_part_that_moved_on_is_refused,
    test_history_rollback_and_prune,
    test_prune_keeps_blobs_of_names_with_spaces_and_of_other_apps,
    test_run_and_collect,
    test_stage_refuses_when_a_blob_is_gone,
    test_the_previous_release_is_never_pruned,
    test_unwritable_base_is_said,
    test_what_stands_in_the_place_of_a_part_is_not_written_through,
)

from .board import PcBoard

__all__ = [
    "test_a_changed_part_is_found_and_sent_again",
    "test_a_part_that_moved_on_is_refused",
    "test_history_rollback_and_prune",
    "test_prune_keeps_blobs_of_names_with_spaces_and_of_other_apps",
    "test_run_and_collect",
    "test_stage_refuses_when_a_blob_is_gone",
    "test_the_previous_release_is_never_pruned",
    "test_unwritable_base_is_said",
    "test_what_stands_in_the_place_of_a_part_is_not_written_through",
]


@pytest.fixture
def board(tmp_path: Path) -> PcBoard:
    return PcBoard(tmp_path)


def test_a_whole_deploy(board: PcBoard, tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", CONTENT)
    board.deploy(app)
    assert board.current == app.id
    for name, data in CONTENT.items():
        assert (board.release / name).read_bytes() == data
        assert not (board.release / name).is_symlink()
    after = board.state(app)
    assert (after.current, after.installed, after.history) == (app.id, True, (app.id,))
    assert actions_for(app, after, 3) == ()
    assert board.store() == set(app.blobs)
    again = board.release / "bundle/copy-of-a"
    assert again.samefile(board.release / "lib/libA.so"), "equal content is there once"


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


@pytest.mark.parametrize("seed", range(6))
def test_cut_anywhere_then_resumed(board: PcBoard, tmp_path: Path, seed: int) -> None:
    app = manifest(tmp_path / "src", CONTENT)
    dice = random.Random(seed)
    whole, sent = sum(item.size for item in app.blobs.values()), 0
    for _ in range(3):
        sends = [a for a in actions_for(app, board.state(app), 3) if isinstance(a, SendBlobs)]
        if not sends:
            break
        cut = dice.randrange(sends[0].bytes + 400)
        board.send(list(sends[0].blobs), cut=cut)
        for name in board.store():
            if not name.endswith(".part"):
                data = (board.base / "store" / name).read_bytes()
                assert hashlib.sha256(data).hexdigest() == name
        sent += min(cut, sends[0].bytes)
    for action in actions_for(app, board.state(app), 3):
        if isinstance(action, SendBlobs):
            sent += action.bytes
            board.send(list(action.blobs)).check(action.blobs, board.facts, "b", "")
    assert board.state(app).have == set(app.blobs)
    assert sent <= whole + 3 * 400


def test_damage_is_found_by_time_size_and_hash(board: PcBoard, tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", CONTENT)
    board.deploy(app)
    blob = board.base / "store" / app.files[0].sha256
    was = blob.stat()
    blob.chmod(0o644)
    blob.write_bytes(b"b" * 3_000_000)
    later = (board.own / ".installed").stat().st_mtime_ns + 1_000_000_000
    os.utime(blob, ns=(later, later))
    assert board.state(app).bad == {app.files[0].sha256}
    os.utime(blob, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert not board.state(app).bad
    assert board.state(app, verify=True).bad == {app.files[0].sha256}
    blob.write_bytes(b"short")
    assert board.state(app).bad == {app.files[0].sha256}
    board.deploy(app)
    assert (board.release / "lib/libA.so").read_bytes() == b"a" * 3_000_000


def test_a_file_that_is_gone_or_another_is_put_back(board: PcBoard, tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", CONTENT)
    board.deploy(app)
    (board.release / "bin/tool").unlink()
    copied = board.release / "bundle/empty"
    copied.unlink()
    copied.write_bytes(b"")
    assert len(board.state(app).unlinked) == 2
    assert isinstance(actions_for(app, board.state(app), 3)[0], StageRelease)
    assert board.stage(app).returncode == 0
    assert actions_for(app, board.state(app), 3) == ()


def test_current_is_old_or_new_at_every_instant(board: PcBoard, tmp_path: Path) -> None:
    apps = [manifest(tmp_path / str(n), {"f": bytes([n])}) for n in (1, 2)]
    for app in apps:
        board.deploy(app)
    seen: set[str | None] = set()
    stop = threading.Event()

    def observe() -> None:
        while not stop.is_set():
            seen.add(board.current)

    thread = threading.Thread(target=observe)
    thread.start()
    for turn in range(20):
        assert board.switch(apps[turn % 2]).returncode == 0
    stop.set()
    thread.join()
    assert seen == {app.id for app in apps}


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


@pytest.mark.parametrize("line", ["*", "..", "/", "../../x", "$(id)", "zz", "-rf"])
def test_garbage_in_the_history_removes_nothing_that_stays(
    board: PcBoard, tmp_path: Path, line: str
) -> None:
    apps = [manifest(tmp_path / str(n), {"f": bytes([n])}) for n in range(3)]
    for app in apps:
        board.deploy(app)
    history = board.base / "history" / "app"
    history.write_text(history.read_text() + (line + "\n") * 5)
    (board.base / "beside").write_text("kept")
    done = board.prune("2")
    assert done.returncode == 0, done.stderr
    left = {path.name for path in (board.base / "releases" / "app").iterdir()}
    assert left == {apps[1].id, apps[2].id}
    assert (board.base / "beside").read_text() == "kept"
    assert board.store() == set(apps[1].blobs) | set(apps[2].blobs)


def test_prune_without_a_pointer_removes_nothing(board: PcBoard, tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", CONTENT)
    board.deploy(app)
    (board.base / "current" / "app").write_text("")
    done = board.prune("2")
    assert b"nothing was removed" in done.stdout
    assert board.store() == set(app.blobs)


def test_status_counts_what_is_broken(board: PcBoard, tmp_path: Path) -> None:
    assert board.run("status", str(board.base)).stdout == b"fleet-status 1\nend\n"
    app = manifest(tmp_path / "src", {"f": b"1", "g": b"2"})
    board.deploy(app)
    text = board.run("status", str(board.base)).stdout.decode()
    assert f"name app {app.id} installed 0" in text
    assert "\nmade app 1" in text
    (board.base / "store" / app.files[0].sha256).unlink()
    text = board.run("status", str(board.base)).stdout.decode()
    assert f"name app {app.id} damaged 1" in text


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


def test_the_limit_ends_a_run_with_its_children(board: PcBoard, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    code = (
        "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', "
        f"'import time; time.sleep(60)']); open({str(mark)!r}, 'w').write(str(p.pid)); p.wait()"
    )
    words = (str(tmp_path / "w"), "", "2", "none", "keep", *python(code))
    assert board.run("run", *words).returncode == 124
    state = Path("/proc", mark.read_text(), "stat")
    assert not state.exists() or state.read_text().split()[2] in "ZX"


def test_a_crash_and_a_missing_program_have_a_status(board: PcBoard, tmp_path: Path) -> None:
    words = (str(tmp_path / "w"), "", "60", "none", "clean")
    crash = python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert board.run("run", *words, *crash).returncode == 128 + 11
    done = board.run("run", *words, "no-such-program.exe")
    assert (done.returncode, b"no-such-program.exe" in done.stderr) == (127, True)


def test_the_environment_for_people_is_only_text(tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", {"f": b"1"})
    lines = power_lines(app, "C:/it's")
    assert "$env:ODD = 'it''s; $(id) `x`'" in lines
    assert "$env:LD_LIBRARY_PATH = 'C:/it''s/releases/app/" + app.id + "/lib'" in lines
    assert "Remove-Item Env:DSP_LIBRARY_PATH -ErrorAction SilentlyContinue" in lines
    assert sys.platform != "win32"
