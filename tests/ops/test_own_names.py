"""Files of a release that are named like fleet's own: what a device makes of them.

The whole of the trees is run with FLEET_HOSTILE_TREES=2000 and `-k hostile -m ''`; see hostile.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fleet.device.store.files import put
from fleet.device.texts import path_of
from fleet.model.errors import InputError
from fleet.model.files import FileRef, check_windows_names
from fleet.ops.release import actions_for
from tests.transport.windows.board import board_of

from . import hostile
from .board import KINDS, SHELLS, Board, manifest
from .test_serving import until

PUBLIC = b"a library that many releases have\n" * 100
MARKS = ("env.sh", "manifest.json", ".installed", ".seal")
ROOT = Path(__file__).parents[2]
TREES = int(os.environ.get("FLEET_HOSTILE_TREES", "25"))
NOBODY = 65534


@pytest.fixture(params=KINDS)
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Board:
    return Board(tmp_path, request.param)


def own(board: Board, release_id: str) -> Path:
    return board.base / "meta" / "app" / release_id


def as_before(board: Board, release_id: str) -> None:
    """What an earlier fleet left: its files among those of the user, and no folder of its own."""
    for path in own(board, release_id).iterdir():
        path.rename(board.base / "releases" / "app" / release_id / path.name)
    own(board, release_id).rmdir()


@pytest.mark.parametrize("kind", ["windows", "python", "dash+tar"])
def test_a_few_hostile_trees_are_there_as_they_are_here(tmp_path: Path, kind: str) -> None:
    assert hostile.check(kind, tmp_path, 3, seed=7)["trees"] == 3


@pytest.mark.parametrize("user", [0, NOBODY], ids=["root", "nobody"])
@pytest.mark.parametrize("kind", hostile.KINDS)
def test_hostile_trees_are_there_as_they_are_here(kind: str, user: int) -> None:
    """Each with what others left where fleet writes: 0 differences, nothing else changed."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user too")
    with tempfile.TemporaryDirectory(prefix="fleet-hostile-") as root:
        argv = [sys.executable, "-Bm", "tests.ops.hostile", kind, str(TREES), "21", root, str(user)]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"as user {user}: {{'trees': {TREES}, " in done.stdout


@pytest.mark.parametrize("name", ["a\nb", "a\tb", "\n", "a/\t/b", "\udcff", "a\0"])
def test_what_no_list_can_hold_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot be the name of a file in a release"):
        FileRef(Path(), name, 0, "")


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["a:b"], "the name contains ':'"),
        (["lib/a\\b"], r"the name contains '\\\\'"),
        (["CON"], "'CON' is the name of a device on Windows"),
        (["lib/nul.txt"], "'nul' is the name of a device on Windows"),
        (["com¹ .x/a"], "'com¹' is the name of a device on Windows"),
        (["a."], "the name ends with '.'"),
        (["lib /a"], "the name ends with ' '"),
        (["a/b", "A/b"], "Windows reads the name as 'a'"),
        (["é", "É"], "Windows reads the name as 'é'"),
        (["lib/x", "lib/X/y"], "Windows reads the name as 'lib/x'"),
    ],
)
def test_a_name_that_windows_does_not_keep_is_refused(names: list[str], why: str) -> None:
    with pytest.raises(InputError, match="Windows does not allow the file name .*" + why):
        check_windows_names(names)


def test_names_that_windows_keeps() -> None:
    check_windows_names(["./lib/a b.so", "lib/a", "console", ".com1", "nul_x", "x/CON-1", "😀"])


def test_nothing_of_fleets_own_is_among_the_users(board: Board, tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", dict.fromkeys(MARKS, b"mine"))
    board.deploy(app)
    assert hostile.read(board.base / "releases" / "app" / app.id) == dict.fromkeys(MARKS, b"mine")
    assert {path.name for path in own(board, app.id).iterdir()} >= {*MARKS} - {".seal"}
    assert board.state(app).sealed


def test_a_link_in_the_place_of_a_blob_is_none(board: Board, tmp_path: Path) -> None:
    """Not even where what it leads to has the size of the blob."""
    app = manifest(tmp_path / "src", {"f": b"mine"})
    aside = tmp_path / "aside"
    aside.write_bytes(b"else")
    (board.base / "store").mkdir(parents=True)
    (board.base / "store" / app.files[0].sha256).symlink_to(aside)
    board.deploy(app)
    assert hostile.read(board.base / "releases" / "app" / app.id) == {"f": b"mine"}
    assert aside.read_bytes() == b"else"


@pytest.mark.parametrize("shell", [kind for kind in SHELLS if "+" not in kind])
def test_what_a_killed_one_left_is_never_installed(tmp_path: Path, shell: str) -> None:
    """The input of the next one ends before its manifest: a link that broke."""
    board, app = Board(tmp_path, shell), manifest(tmp_path / "src", {"data.bin": PUBLIC})
    board.deploy(app)
    place = own(board, app.id)
    whole = {name: (place / name).read_text() for name in ("env.sh", "manifest.json")}
    left = board.base / "releases" / "app" / ".stage-r2" / "own"
    left.mkdir(parents=True)
    for name, text in whole.items():
        (left / name).write_text(text[: len(text) // 2])
    done = board.run("stage", str(board.base), "app", app.id, "r2", stdin=b"d\tlib\n")
    assert {name: (place / name).read_text() for name in whole} == whole
    assert done.returncode == 74
    assert b"staged" not in done.stdout
    assert board.stage(app).returncode == 0


@pytest.mark.parametrize("end", ["", ".new"])
def test_a_link_that_a_killed_one_left_is_in_nobodys_way(
    board: Board, tmp_path: Path, end: str
) -> None:
    app = manifest(tmp_path / "src", {"data.bin": PUBLIC})
    board.deploy(app)
    aside = tmp_path / "aside"
    aside.write_text("mine")
    for name in MARKS:
        (own(board, app.id) / f"{name}{end}").unlink(missing_ok=True)
        (own(board, app.id) / f"{name}{end}").symlink_to(aside)
    assert board.stage(app).returncode == 0
    assert board.switch(app).returncode == 0
    assert aside.read_text() == "mine"
    assert board.state(app).sealed


def test_a_release_of_an_earlier_fleet_goes_on_and_is_replaced(
    board: Board, tmp_path: Path
) -> None:
    old, new = (manifest(tmp_path / word, {"f": word.encode()}) for word in ("old", "new"))
    for app in (old, new):
        board.deploy(app)
        as_before(board, app.id)
    state = board.state(new)
    assert (state.current, state.installed, state.old, state.sealed) == (new.id, True, True, False)
    said = board.run("status", str(board.base)).stdout.decode()
    assert f"name app {new.id} installed 0" in said
    assert "manifest app" in said
    before = hostile.read(board.base / "releases")
    assert board.switch(old).returncode == 0, "rollback"
    assert (board.current, hostile.read(board.base / "releases")) == (old.id, before)
    assert board.prune("2").returncode == 0
    assert hostile.read(board.base / "releases") == before
    assert board.switch(new).returncode == 0
    assert actions_for(new, board.state(new), 2), "the same content is staged anew"
    assert board.stage(new).returncode == 0
    assert board.state(new).installed, "also where the health probe that follows fails"
    board.deploy(new)
    state = board.state(new)
    assert (state.installed, state.old, state.sealed) == (True, False, True)
    assert actions_for(new, state, 2) == ()


def test_one_that_was_never_live_is_not_switched_to(board: Board, tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", {"f": b"f"})
    board.deploy(app)
    as_before(board, app.id)
    (board.base / "releases" / "app" / app.id / ".installed").unlink()
    assert board.switch(app).returncode == 78


def test_what_is_fleets_goes_with_its_release(board: Board, tmp_path: Path) -> None:
    apps = [manifest(tmp_path / word, {"f": word.encode()}) for word in ("a", "b", "c")]
    for app in apps:
        board.deploy(app)
    shutil.copytree(own(board, apps[0].id), own(board, "0" * 16))  # a prune was killed
    assert board.prune("2").returncode == 0
    assert {path.name for path in (board.base / "meta/app").iterdir()} == {
        app.id for app in apps[1:]
    }


def test_the_history_of_another_release_is_no_temporary_file(tmp_path: Path) -> None:
    board = Board(tmp_path, "python")
    (board.base / "history").mkdir(parents=True)
    other = board.base / "history" / "app.new"  # of a release that is named so
    other.write_text("0123456789abcdef\n")
    board.deploy(manifest(tmp_path / "src", {"f": b"f"}))
    assert other.read_text() == "0123456789abcdef\n"


@pytest.mark.parametrize("name", [".seal", ".seal-mine", "lib/.sealed"])
def test_the_seal_leaves_out_nothing_but_itself(board: Board, tmp_path: Path, name: str) -> None:
    app = manifest(tmp_path / "src", {name: b"mine", "more": b"x"})
    board.deploy(app)
    assert board.state(app).sealed
    (board.base / "releases" / "app" / app.id / name).unlink()
    state = board.state(app)
    assert not state.sealed
    assert state.unlinked


def test_the_windows_program_writes_into_no_hard_link(tmp_path: Path) -> None:
    """A release is one of hard links there, and a name that fits is soon guessed."""
    blob, path = tmp_path / "blob", tmp_path / "manifest.json"
    for part in (f"{path}.{os.getpid()}", f"{path}.new"):
        blob.write_bytes(PUBLIC)
        os.link(blob, part)
    put(str(path), "{}")
    assert (blob.read_bytes(), path.read_text()) == (PUBLIC, "{}")


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox", "mksh"])
def test_scripts_that_keep_a_content_write_through_no_link(tmp_path: Path, shell: str) -> None:
    board = Board(tmp_path, shell)
    aside = tmp_path / "aside"
    aside.write_text("mine")
    service = board.base / "serve" / "app"
    service.mkdir(parents=True)
    for name in ("staged.new", "serve/app/token.new", "serve/app/config.new"):
        (board.base / name).symlink_to(aside)
    put = board.run("put", str(board.base / "staged"), stdin=b"content")
    assert put.returncode == 0, put.stderr
    serve = board.run("serve_put", str(board.base), "app", "0123", "", stdin=b"secret\n{}")
    assert serve.returncode == 0, serve.stderr
    assert aside.read_text() == "mine"
    assert (board.base / "staged").read_text() == "content"
    assert ((service / "token").read_text(), (service / "config.json").read_text()) == (
        "secret\n",
        "{}",
    )


@pytest.mark.parametrize("kind", ["dash", "bash", "busybox", "mksh", "windows"])
@pytest.mark.parametrize("planted", ["in it", "instead of it"])
def test_a_run_has_a_folder_that_was_not_there_before(
    tmp_path: Path, kind: str, planted: str
) -> None:
    board = board_of(kind, tmp_path)
    aside, work = tmp_path / "aside", board.base / "runs" / "r1"
    aside.mkdir()
    files = [aside / name for name in ("prompt.txt", "config.json", ".looks", ".running", ".late")]
    work.parent.mkdir(parents=True)
    if planted == "in it":
        work.mkdir()
    else:
        work.symlink_to(aside)
    for path in files:
        path.write_text("mine")
        if planted == "in it":
            (work / path.name).symlink_to(path)
    done = board.run("run", str(work), "{}", "30", "none", "keep", "true", stdin=b"prompt")
    assert done.returncode == 0, done.stderr
    assert {path.read_text() for path in files} == {"mine"}
    assert {path.name for path in work.iterdir()} == {"prompt.txt", "config.json"}


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox", "mksh"])
def test_a_service_and_a_lease_write_through_no_link(tmp_path: Path, shell: str) -> None:
    """The supervisor runs in that shell too; its release cannot start."""
    board = Board(tmp_path, shell)
    board.tools.mkdir(exist_ok=True)
    (board.tools / "sh").symlink_to(board.shell[0])
    aside, service = tmp_path / "aside", board.base / "serve" / "app"
    lease = tmp_path / "write.1"
    aside.write_text("mine")
    program = service / "release" / "run"
    program.mkdir(parents=True)
    shutil.copy(path_of("serve_supervise.sh"), program)
    (program / "serve_launch.sh").write_text("exit 10\n")
    lease.mkdir()
    (lease / "owner").write_text("1 me why run token\n")
    names = ("log", "stop", "failed", "failed.new", "keeper", "keeper.new", "server.new")
    for path in (lease / "released", *(service / name for name in names)):
        path.symlink_to(aside)
    done = board.run("serve_start", str(service))
    assert done.returncode == 0, done.stderr
    until(lambda: not (service / "failed").is_symlink())
    done = board.run("serve_stop", str(service), "5")
    assert done.returncode == 0, done.stderr
    assert b"freed" in board.run("lease_free", str(tmp_path), "1", "token").stdout
    assert aside.read_text() == "mine"
    assert b"cannot start" in (service / "log").read_bytes()
    assert not {path.name for path in (*service.iterdir(), *lease.iterdir()) if path.is_symlink()}
