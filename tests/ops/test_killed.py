"""The shell on the device is killed between any two of its commands, in every script of a deploy.

bash runs the scripts here, because its DEBUG trap stands between all commands; that the other
shells do the same is what tests/ops/test_scripts.py is for. Killed is either the shell alone,
so that dd or tar end by themselves, or all that it started, as at a power cut.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.model.manifest import Manifest
from fleet.model.plan import Blob, PruneReleases, SendBlobs, StageRelease, SwitchRelease
from fleet.ops.backend import backend_for
from fleet.ops.frames import Style, frames
from fleet.ops.release import actions_for

from .board import Board, actions_of, flat, manifest, ordered, program

KILLED = -9
OLD = {"lib/libA.so": b"old" * 1000, "bin/tool": b"#!/bin/sh\n", "data/same": b"s" * 500}
NEW = {
    "lib/libA.so": b"new" * 1000,
    "lib/libB.so": b"B" * 100_000,
    "bin/tool": b"#!/bin/sh\nexit 0\n",
    "data/same": b"s" * 500,
}
Step = tuple[tuple[str, ...], bytes]


def killed_at(board: Board, step: Step, at: int, *, everything: bool) -> bool:
    """Run a step and kill it before its `at`-th command; False when it ended before."""
    argv, stdin = step
    by_python = argv[0] == sys.executable
    done = subprocess.run(
        (python_trap if by_python else shell_trap)(board, argv, at, everything=everything),
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
        start_new_session=True,
        env={**os.environ, "PATH": f"{board.tools}:{os.environ['PATH']}"},
    )
    assert done.returncode in {0, KILLED}, done
    return done.returncode == KILLED


def shell_trap(_: Board, argv: tuple[str, ...], at: int, *, everything: bool) -> list[str]:
    whom = "0" if everything else "$$"
    trap = (
        "set -T; fleet_k=0; trap 'fleet_k=$((fleet_k+1)); "
        f'[ "$fleet_k" -lt {at} ] || kill -KILL {whom}\' DEBUG\n'
    )
    return ["bash", "-c", trap + argv[2], *argv[3:]]


# The device's own program is killed before it opens, makes, renames or removes something below
# its base folder, or starts another program.
HOOK = """
import os, sys
def hook(event, args, seen=[0], base=sys.argv[1]):
    if event not in ("os.spawn", "os.posix_spawn"):
        if event not in ("open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.symlink"):
            return
        path = args[1] if event == "os.symlink" else args[0]
        if not isinstance(path, str) or (path[0] == "/" and not path.startswith(base)):
            return
    seen[0] += 1
    if seen[0] >= {at}:
        os.kill({whom}, 9)
del sys.argv[1]
sys.addaudithook(hook)
"""


def python_trap(board: Board, argv: tuple[str, ...], at: int, *, everything: bool) -> list[str]:
    python, option, program, *args = argv
    hook = HOOK.format(at=at, whom="0" if everything else "os.getpid()")
    return [python, option, hook + program, str(board.base), *args]


def one_by_one(board: Board, app: Manifest) -> dict[str, Step]:
    """The commands of a deploy in their order, with what each reads."""
    backend = backend_for(board.facts)
    blobs = [Blob(item) for item in app.blobs.values()]
    style = Style(batches=backend.batches, worker=backend.worker, archive=backend.archive)
    found = {"receive": (backend.receive().argv, flat(frames(blobs, lambda *_: None, style)))}
    for name, action in zip(("stage", "switch", "prune"), actions_of(app), strict=True):
        command, stdin = ordered(board.facts, [action], "r9")
        found[name] = (command.argv, stdin)
    return found


def steps(board: Board, app: Manifest) -> dict[str, Step]:
    """`all` is what a push does by the device worker or on a phone, in one stream."""
    found, backend = one_by_one(board, app), backend_for(board.facts)
    text = len(program(board.facts))
    if backend.one_stream:
        parts = [found[name][1][text:] for name in ("stage", "switch", "prune")]
        data = found["receive"][1] + b"".join(parts)
        return {**found, "all": (backend.receive(steps=True).argv, data)}
    if board.facts.tools.tar:
        command, stdin = ordered(board.facts, actions_of(app), "r9")
        found["at once"] = (command.argv, stdin)
    return found


def whole(board: Board, apps: dict[str, Manifest]) -> str:
    """Nothing is half there: which release is live."""
    store = board.base / "store"
    for blob in store.iterdir():
        if blob.is_file() and not blob.name.endswith(".part"):
            assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name
            mode = stat.S_IMODE(blob.stat().st_mode)
            assert mode in {0o444, 0o555}, f"{blob.name} has its name before its mode: {mode:o}"
    assert board.current is not None
    app = apps[board.current]
    for item in app.files:
        path = board.base / "current" / "app" / item.name
        assert hashlib.sha256(path.read_bytes()).hexdigest() == item.sha256
        assert os.access(path, os.X_OK) == item.executable or os.geteuid() == 0
    assert (board.base / "meta" / "app" / app.id / ".installed").is_file(), "live and not installed"
    return app.id


SCRIPTS = (
    "receive",
    "receive+tar",
    "stage",
    "stage+tar",
    "switch",
    "prune",
    "at once+tar",
    "all+cpio",
)
STRIDE = 13  # of the fast tier; beginning elsewhere for each script, so that all kinds are met


@pytest.mark.parametrize("everything", [True, False], ids=["all", "shell"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_killed_between_commands(tmp_path: Path, script: str, everything: bool) -> None:
    first = 1 + (2 * SCRIPTS.index(script) + everything) % STRIDE
    places = range(first, 1000, STRIDE)
    if script == "switch" and everything:
        places = range(1, 1000)  # the one that matters most is short
    kill_everywhere(tmp_path, script, everything, places)


@pytest.mark.slow
@pytest.mark.parametrize("everything", [True, False], ids=["all", "shell"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_killed_between_any_two_commands(tmp_path: Path, script: str, everything: bool) -> None:
    kill_everywhere(tmp_path, script, everything, range(1, 1000))


FRAMES = ("receive", "stage", "switch", "prune", "all")


@pytest.mark.parametrize("step", FRAMES)
def test_the_program_is_killed_before_a_change(tmp_path: Path, step: str) -> None:
    stride = 1 if step == "switch" else STRIDE
    places = range(1 + FRAMES.index(step) % stride, 1000, stride)
    kill_everywhere(tmp_path, f"{step}+python", True, places)


@pytest.mark.slow
@pytest.mark.parametrize("everything", [True, False], ids=["all", "program"])
@pytest.mark.parametrize("step", FRAMES)
def test_the_program_is_killed_before_any_change(
    tmp_path: Path, step: str, everything: bool
) -> None:
    kill_everywhere(tmp_path, f"{step}+python", everything, range(1, 1000))


def kill_everywhere(tmp_path: Path, script: str, everything: bool, places: range) -> None:
    script, _, tar = script.partition("+")
    board = Board(tmp_path, "python" if tar == "python" else f"bash+{tar}" if tar else "bash")
    apps = [manifest(tmp_path / "1", {"f": b"1"}), manifest(tmp_path / "2", OLD)]
    first, old, new = *apps, manifest(tmp_path / "3", NEW)
    later = manifest(tmp_path / "4", {"f": b"4"})
    for app in (first, old):
        board.deploy(app)
    todo = steps(board, new)
    names = list(todo)
    for name in names[: {"all": 0, "at once": 1}.get(script, names.index(script))]:
        assert not killed_at(board, todo[name], 1 << 30, everything=True)
    assert whole(board, {app.id: app for app in (old, new)})

    def look() -> str:
        return after(board, old, new, later)

    seen = each_prefix(board, todo[script], everything, places, look)
    assert seen, "the script has more commands than that"
    assert seen == sorted(seen, key=[old.id, new.id].index), "once new, never old again"
    if script in {"switch", "all", "at once"}:
        assert places.step > 1 or set(seen) == {old.id, new.id}
    else:
        assert set(seen) == {new.id if script == "prune" else old.id}


def each_prefix(
    board: Board, step: Step, everything: bool, places: range, look: Callable[[], str]
) -> list[str]:
    """What is live after each prefix of the step, found by `look`."""
    saved = board.base.with_name("saved")
    shutil.copytree(board.base, saved, symlinks=True)
    seen = []
    for at in places:
        shutil.rmtree(board.base)
        shutil.copytree(saved, board.base, symlinks=True)
        if not killed_at(board, step, at, everything=everything):
            break
        seen.append(look())
    return seen


def bring(board: Board, app: Manifest) -> None:
    """What a deploy does: the actions that the state asks for, and no other."""
    for action in actions_for(app, board.state(app), 2):
        match action:
            case SendBlobs():
                board.send(list(action.blobs)).check(action.blobs, board.facts, "board", "")
            case StageRelease():
                assert board.stage(app).returncode == 0
            case SwitchRelease():
                assert board.switch(app).returncode == 0
            case PruneReleases():
                assert board.prune("2").returncode == 0
    assert actions_for(app, board.state(app), 2) == ()
    assert board.current == app.id


def after(board: Board, old: Manifest, new: Manifest, later: Manifest) -> str:
    """Whole after the kill; a deploy goes on from there, and what was live can be gone back to."""
    live = whole(board, {app.id: app for app in (old, new)})
    bring(board, new)
    assert whole(board, {new.id: new}) == new.id
    assert board.state(new).previous == old.id
    bring(board, later)
    assert board.state(later).previous == new.id, "what was live is where a rollback goes"
    assert board.switch(new).returncode == 0
    assert whole(board, {new.id: new}) == new.id
    return live
