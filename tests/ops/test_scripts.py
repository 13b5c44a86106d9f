"""What takes blobs and makes releases, on real files: one suite for each device program.

The scripts under every POSIX shell of this machine, the device worker, and what a Windows PC runs.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from fleet.device.store.links_posix import PosixLinks
from fleet.device.store.links_windows import WindowsLinks
from fleet.model.deadline import Deadline
from fleet.model.errors import DeviceError, DiskFullError, TransferError
from fleet.model.files import FileRef
from fleet.model.manifest import Manifest
from fleet.model.plan import Blob, PruneReleases, SendBlobs, StageRelease, SwitchRelease
from fleet.ops import release
from fleet.ops.backend import backend_for
from fleet.ops.frames import frames
from fleet.ops.release import actions_for
from tests.transport.windows.board import board_of

from .board import KINDS, SHELLS, Board, flat, manifest

OF_A_LOGIN_SHELL = pytest.mark.parametrize("board", KINDS, indirect=True)
CONTENT = {
    "lib/libA.so": b"a" * 3_000_000,
    "bin/tool": b"#!/bin/sh\necho hi\n",
    "bundle/odd 'name' $x é.bin": os.urandom(1_048_576),
    "bundle/empty": b"",
    "bundle/copy-of-a": b"a" * 3_000_000,
}


@pytest.fixture(params=(*KINDS, "windows"))
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Board:
    return board_of(request.param, tmp_path)


def test_a_whole_deploy(board: Board, tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", CONTENT)
    empty = board.state(app)
    assert (empty.current, empty.installed, empty.have, empty.parts) == (
        None, False, frozenset(), {}
    )  # fmt: skip
    board.deploy(app)
    assert board.current == app.id
    for name, data in CONTENT.items():
        assert (board.release / name).read_bytes() == data
        assert (board.release / name).is_symlink() != board.windows
    twice = board.release / "bundle/copy-of-a"
    assert twice.samefile(board.release / "lib/libA.so"), "equal content is there once"
    assert os.access(board.release / "bin/tool", os.X_OK)
    after = board.state(app)
    assert (after.current, after.installed) == (app.id, True)
    assert after.have == set(app.blobs)
    assert after.history == (app.id,)
    assert not after.unlinked
    assert actions_for(app, after, 3) == ()
    assert board.store() == set(app.blobs)


def test_equal_content_is_sent_once(tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", CONTENT)
    assert len(app.blobs) == len(CONTENT) - 1


@OF_A_LOGIN_SHELL
def test_env_sh_works_with_any_value(board: Board, tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", CONTENT)
    board.deploy(app)
    script = '. "$2/env.sh"; printf "%s|%s|%s" "$LD_LIBRARY_PATH" "$ODD" "${DSP_LIBRARY_PATH-none}"'
    path = str(board.base / "releases" / "app" / app.id)
    env = {**os.environ, "DSP_LIBRARY_PATH": "/elsewhere"}
    done = subprocess.run(
        [*board.shell, "-c", script, "x", path, path.replace("/releases/", "/meta/")],
        capture_output=True,
        text=True,
        env=env,
        check=True,
    )
    assert done.stdout == f"{path}/lib|it's; $(id) `x`|none"


@OF_A_LOGIN_SHELL
def test_the_environment_for_a_login_follows_the_live_release(board: Board, tmp_path: Path) -> None:
    """One path for all releases: the next one, a rollback, and what stands in its place."""
    board.base = tmp_path / "it's a base"
    board.facts = replace(board.facts, base_dir=str(board.base))
    first = manifest(tmp_path / "src", CONTENT)
    second = manifest(tmp_path / "more", {**CONTENT, "bin/tool": b"#!/bin/sh\necho two\n"})
    path = board.base / "env" / "app.sh"
    script = '. "$1" && tool && printf "%s\\n%s" "$QNN_SDK_ROOT" "$LD_LIBRARY_PATH"'

    def login() -> list[str]:
        argv = [*board.shell, "-c", script, "x", str(path)]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout.split("\n")

    def expected(app: Manifest, word: str) -> list[str]:
        root = board.base.resolve() / "releases" / "app" / app.id
        return [word, str(root), f"{board.base}/releases/app/{app.id}/lib"]

    board.deploy(first)
    assert login() == expected(first, "hi")
    before = path.stat().st_mtime_ns, path.stat().st_ino
    board.deploy(second)
    assert login() == expected(second, "two")
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before, "the text is always the same"
    path.unlink()
    path.mkdir()
    assert board.switch(first).returncode == 0
    assert login() == expected(first, "hi")


def test_every_device_writes_the_same_environment_for_a_login(tmp_path: Path) -> None:
    base = "/home/o'brien/fleet"
    board = Board(tmp_path, "dash")
    board.base = tmp_path / "it's a base"
    board.facts = replace(board.facts, base_dir=str(board.base))
    board.deploy(manifest(tmp_path / "src", CONTENT))
    name, text = PosixLinks().login(str(board.base), "app")
    assert (board.base / "env" / name).read_text() == text
    name, text = WindowsLinks().login(base, "app")
    assert name == "app.ps1"
    assert ". ('/home/o''brien/fleet/meta/app/' + $fleetRelease.Trim() + '/env.ps1')" in text


@pytest.mark.parametrize("board", ["dash", "windows"], indirect=True)
@pytest.mark.parametrize("seed", range(12))
def test_cut_anywhere_then_resumed(board: Board, tmp_path: Path, seed: int) -> None:
    """At any cut no third state: blobs are whole or not there, and the rest is not sent twice."""
    app = manifest(tmp_path / "src", CONTENT)
    dice = random.Random(seed)
    whole = sum(item.size for item in app.blobs.values())
    sent = 0
    for _ in range(3):
        state = board.state(app)
        sends = [a for a in actions_for(app, state, 3) if isinstance(a, SendBlobs)]
        if not sends:
            break
        (send,) = sends
        cut = dice.randrange(send.bytes + 400)
        board.send(list(send.blobs), cut=cut)
        for name in board.store():
            if not name.endswith(".part"):
                path = board.base / "store" / name
                assert hashlib.sha256(path.read_bytes()).hexdigest() == name
        sent += min(cut, send.bytes)
    last = board.state(app)
    lacking = [a for a in actions_for(app, last, 3) if isinstance(a, SendBlobs)]
    sent += sum(a.bytes for a in lacking)
    for action in lacking:
        board.send(list(action.blobs)).check(action.blobs, board.facts, "b", "")
    assert board.state(app).have == set(app.blobs)
    assert sent <= whole + 3 * 400


def test_a_changed_part_is_found_and_sent_again(board: Board, tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", {"f": os.urandom(100_000)})
    (blob,) = [Blob(item) for item in app.blobs.values()]
    board.send([blob], cut=60_000)
    part = board.base / "store" / f"{blob.file.sha256}.part"
    damaged = part.read_bytes()
    part.write_bytes(bytes([damaged[0] ^ 1]) + damaged[1:])
    state = board.state(app)
    resumed = Blob(blob.file, state.parts[blob.file.sha256])
    receipt = board.send([resumed])
    with pytest.raises(TransferError, match="on the device differ from the files that fleet sent"):
        receipt.check([resumed], board.facts, "board", "")
    assert board.store() == set()
    board.deploy(app)
    assert board.current == app.id


def test_a_part_that_moved_on_is_refused(board: Board, tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", {"f": b"x" * 1000})
    (item,) = app.blobs.values()
    board.send([Blob(item)], cut=500)
    receipt = board.send([Blob(item, 10)])
    assert receipt.cut
    with pytest.raises(TransferError, match="did not receive"):
        receipt.check([Blob(item, 10)], board.facts, "board", "")


def test_damaged_blob_is_found_by_size_and_by_hash(board: Board, tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", CONTENT)
    board.deploy(app)
    assert board.state(app).sealed != board.windows
    blob = board.base / "store" / app.files[0].sha256
    was = blob.stat()
    blob.chmod(0o644)
    blob.write_bytes(b"b" * 3_000_000)
    later = (board.own / ".installed").stat().st_mtime_ns + 1_000_000_000
    os.utime(blob, ns=(later, later))
    assert not board.state(app).sealed
    assert board.state(app).bad == {app.files[0].sha256}
    os.utime(blob, ns=(was.st_atime_ns, was.st_mtime_ns))  # who hides it is found by --verify
    assert not board.state(app).bad
    assert board.state(app, verify=True).bad == {app.files[0].sha256}
    blob.write_bytes(b"short")
    assert board.state(app).bad == {app.files[0].sha256}
    kinds = [type(a) for a in actions_for(app, board.state(app), 3)]
    assert SendBlobs in kinds
    assert SwitchRelease not in kinds
    board.deploy(app)
    assert (board.release / "lib/libA.so").read_bytes() == b"a" * 3_000_000


def test_a_file_that_is_gone_or_another_is_put_back(board: Board, tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", CONTENT)
    board.deploy(app)
    (board.release / "bin/tool").unlink()
    copied = board.release / "bundle/empty"
    copied.unlink()
    copied.write_bytes(b"")
    state = board.state(app)
    assert len(state.unlinked) == 2
    assert isinstance(actions_for(app, state, 3)[0], StageRelease)
    assert board.stage(app).returncode == 0
    assert actions_for(app, board.state(app), 3) == ()


def test_stage_refuses_when_a_blob_is_gone(board: Board, tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", CONTENT)
    done = board.stage(app)
    assert done.returncode == 78
    assert b"(2a152c894398) is missing in the store" in done.stdout + done.stderr
    assert board.switch(app).returncode == 78
    assert board.current is None


@pytest.mark.parametrize("board", ["dash", "windows"], indirect=True)
def test_current_is_old_or_new_at_every_instant(board: Board, tmp_path: Path) -> None:
    apps = [manifest(tmp_path / str(n), {"f": bytes([n])}) for n in (1, 2)]
    for app in apps:
        board.deploy(app)
    seen: set[bytes | str | None] = set()
    stop = threading.Event()

    def observe() -> None:
        path = board.base / "current" / "app" / "f"
        while not stop.is_set():
            seen.add(board.current if board.windows else path.read_bytes())

    thread = threading.Thread(target=observe)
    thread.start()
    for turn in range(100):
        assert board.switch(apps[turn % 2]).returncode == 0
    stop.set()
    thread.join()
    assert seen == ({app.id for app in apps} if board.windows else {b"\1", b"\2"})


def test_history_rollback_and_prune(board: Board, tmp_path: Path) -> None:
    apps = [manifest(tmp_path / str(n), {"f": bytes([n]), "same": b"s"}) for n in range(5)]
    for app in apps:
        board.deploy(app)
    state = board.state(apps[4])
    assert state.previous == apps[3].id
    assert board.switch(apps[3]).returncode == 0
    assert board.state(apps[3]).previous == apps[4].id
    done = board.prune("2")
    assert done.returncode == 0
    left = {path.name for path in (board.base / "releases" / "app").iterdir()}
    assert left == {apps[3].id, apps[4].id}
    assert board.store() == set(apps[3].blobs) | set(apps[4].blobs)


@pytest.mark.parametrize("keep", ["0", "1"])
def test_the_previous_release_is_never_pruned(board: Board, tmp_path: Path, keep: str) -> None:
    apps = [manifest(tmp_path / str(n), {"f": bytes([n])}) for n in range(3)]
    for app in apps:
        board.deploy(app)
    board.prune(keep)
    left = {path.name for path in (board.base / "releases" / "app").iterdir()}
    assert left == {apps[1].id, apps[2].id}


def test_prune_keeps_blobs_of_names_with_spaces_and_of_other_apps(
    board: Board, tmp_path: Path
) -> None:
    app = manifest(tmp_path / "src", CONTENT)
    board.deploy(app)
    done = board.prune("3")
    assert done.stdout == b"pruned\n"
    assert board.store() == set(app.blobs)


@pytest.mark.parametrize("board", SHELLS, indirect=True)
def test_no_hash_tool_keeps_the_part_for_reading_back(board: Board, tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", {"bin/t": b"data"})
    (blob,) = [Blob(item) for item in app.blobs.values()]
    facts = board.without(sha256=(), sync_file=False)
    data = flat(frames([blob], lambda *_: None))
    done = board.argv(backend_for(facts).receive().argv, data)
    assert done.stdout.decode() == f"unhashed {blob.file.sha256}\n"
    done = board.run("accept", str(board.base), "file", stdin=f"{blob.file.sha256} 555\n".encode())
    assert done.returncode == 0
    assert board.state(app).have == {blob.file.sha256}


@pytest.mark.parametrize("board", SHELLS, indirect=True)
def test_single_stream_for_a_dd_without_fullblock(board: Board, tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", {"f": os.urandom(70_000)})
    (blob,) = [Blob(item) for item in app.blobs.values()]
    data = flat(frames([blob], lambda *_: None))
    done = board.argv(backend_for(board.facts).receive(single=True).argv, data)
    assert done.stdout.decode() == f"ok {blob.file.sha256}\n"


def test_full_disk_is_said_and_what_arrived_stays(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small tmpfs")
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=True)
    try:
        board = Board(small, "dash")
        app = manifest(tmp_path / "src", {"a": b"x" * 1000, "z": os.urandom(3_000_000)})
        blobs = [Blob(item) for item in app.blobs.values()]
        receipt = board.send(blobs)
        with pytest.raises(DiskFullError, match="No space left on device") as caught:
            receipt.check(blobs, board.facts, "board", "")
        assert "base_dir" in caught.value.hint
        assert blobs[0].file.sha256 in board.store()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_unwritable_base_is_said(board: Board, tmp_path: Path) -> None:
    board.base.parent.mkdir(exist_ok=True)
    board.base.write_text("a file where the folder should be")
    app = manifest(tmp_path / "src", {"f": b"x"})
    blobs = [Blob(item) for item in app.blobs.values()]
    receipt = board.send(blobs)
    with pytest.raises(DeviceError, match="cannot write"):
        receipt.check(blobs, board.facts, "board", "")


def test_cut_answer_is_an_error() -> None:
    with pytest.raises(DeviceError, match="returned only a part"):
        release.parse_state("motd\nfleet-state 1\nhave abc\n", "board", Manifest("app", ()))


def test_noise_before_the_answer_is_dropped() -> None:
    state = release.parse_state(
        "Welcome!\nfleet-state 1\ncurrent x\nend\n", "board", Manifest("app", ())
    )
    assert state.current == "x"


def test_run_and_collect(board: Board, tmp_path: Path) -> None:
    work = tmp_path / "work dir"
    argv = (
        "sh",
        "-c",
        'cat "$1/prompt.txt" "$1/config.json" > "$1/out"; cat; exit 5',
        "x",
        str(work),
    )
    done = board.run(
        "run", str(work), '{"a": "it\'s"}', "60", "none", "keep", *argv, stdin=b"line 1\nline 2\n"
    )
    assert done.returncode == 5
    assert done.stdout == b""
    assert (work.stat().st_mode & 0o777) == 0o700
    got = board.run("collect", str(work), "out", "no*")
    assert got.stdout == b'fleet-file\nfile 27 out\nline 1\nline 2\n{"a": "it\'s"}\nend\n'
    assert not work.exists()
    assert board.run("collect", str(work), "out").returncode == 44


def test_status(board: Board, tmp_path: Path) -> None:
    assert board.run("status", str(board.base)).stdout == b"fleet-status 1\nend\n"
    apps = [manifest(tmp_path / str(n), {"f": bytes([n])}) for n in range(2)]
    for app in apps:
        board.deploy(app)
    text = board.run("status", str(board.base)).stdout.decode()
    assert f"name app {apps[1].id} installed 0" in text
    own = board.base / "meta" / "app" / apps[1].id / ".installed"
    assert f"made app {int(own.stat().st_mtime)}\n" in text
    (board.base / "store" / apps[1].files[0].sha256).unlink()
    text = board.run("status", str(board.base)).stdout.decode()
    assert f"name app {apps[1].id} damaged 1" in text


def test_actions_describe_themselves(tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", CONTENT)
    state = release.ReleaseState("old", True, ("old",), frozenset(), {}, frozenset(), frozenset())
    actions = actions_for(app, state, 3)
    assert [a.describe() for a in actions][-2:] == [
        f"switch current/app: old -> {app.id}",
        "keep the newest 3 releases of app",
    ]
    assert isinstance(actions[-1], PruneReleases)
    assert actions[0].bytes == sum(item.size for item in app.blobs.values())


GARBAGE = ["*", "..", "/", "", "../../x", "$(id)", "zz", "abc\r", "-rf"]


@pytest.mark.parametrize(
    "line", ["\n".join(GARBAGE), *(pytest.param(line, marks=pytest.mark.slow) for line in GARBAGE)]
)
def test_garbage_in_the_history_removes_nothing_that_stays(
    board: Board, tmp_path: Path, line: str
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
    assert board.current == apps[2].id
    assert (board.base / "beside").read_text() == "kept"
    assert board.store() == set(apps[1].blobs) | set(apps[2].blobs)


def test_without_a_history_only_the_current_release_is_known(board: Board, tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", {"f": b"x"})
    board.deploy(app)
    (board.base / "history" / "app").unlink()
    board.prune("3")
    assert board.current == app.id
    assert (board.release / "f").read_bytes() == b"x"


@pytest.mark.parametrize("planted", ["link", "folder", "pipe"])
def test_what_stands_in_the_place_of_a_part_is_not_written_through(
    board: Board, tmp_path: Path, planted: str
) -> None:
    app = manifest(tmp_path / "src", {"f": b"data"})
    (blob,) = [Blob(item) for item in app.blobs.values()]
    victim = tmp_path / "victim"
    victim.write_text("precious")
    part = board.base / "store" / f"{blob.file.sha256}.part"
    part.parent.mkdir(parents=True)
    if planted == "link":
        part.symlink_to(victim)
    elif planted == "folder":
        part.mkdir()
    else:
        os.mkfifo(part)
    board.send([blob]).check([blob], board.facts, "board", "")
    assert victim.read_text() == "precious"
    assert board.state(app).have == {blob.file.sha256}


def gone(words: str) -> None:
    """Wait until no process has these words; the watchdog itself ends within a second or two."""
    deadline, pause = Deadline(10), threading.Event()
    while subprocess.run(["pgrep", "-f", words], capture_output=True, check=False).stdout:
        assert not deadline.expired, words
        pause.wait(0.05)


def test_a_run_past_its_limit_ends_on_the_device(board: Board, tmp_path: Path) -> None:
    mark = f"1234.{os.getpid()}"  # other test processes do the same
    done = board.run("run", str(tmp_path / "w"), "", "1", "none", "keep", "sleep", mark)
    assert done.returncode == 124
    gone(f"sleep {mark}")


@pytest.mark.parametrize("board", SHELLS, indirect=True)
def test_more_than_four_gigabytes(board: Board, tmp_path: Path) -> None:
    """Sizes beyond 32 bits (mksh computes with 32); sparse files, and a hash that is given."""
    size = 5_000_000_123
    source = tmp_path / "huge"
    with source.open("wb") as stream:
        stream.truncate(size)
    sha = "ab" * 32
    blob = Blob(FileRef(source, "huge", size, sha), size - 1_500_000)
    part = board.base / "store" / f"{sha}.part"
    part.parent.mkdir(parents=True)
    with part.open("wb") as stream:
        stream.truncate(blob.offset)
    app = Manifest("app", (blob.file,))
    assert board.state(app).parts == {sha: blob.offset}
    facts = board.without(sha256=("echo", sha), sync_file=True)
    data = flat(frames([blob], lambda *_: None))
    done = board.argv(backend_for(facts).receive().argv, data)
    assert done.stdout.decode() == f"ok {sha}\n", done.stderr
    assert (board.base / "store" / sha).stat().st_size == size
    assert board.state(app).have == {sha}


@pytest.mark.parametrize(
    "board",
    [
        *("dash", "windows"),
        *(pytest.param(shell, marks=pytest.mark.slow) for shell in ("busybox", "mksh")),
    ],
    indirect=True,
)
def test_a_run_past_its_limit_takes_its_children_along(board: Board, tmp_path: Path) -> None:
    mark = f"4321.{os.getpid()}"
    script = f"trap '' TERM; sleep {mark} & sleep {mark}"
    done = board.run("run", str(tmp_path / "w"), "", "1", "none", "keep", "sh", "-c", script)
    assert done.returncode == 124
    gone(f"sleep {mark}")


@pytest.mark.parametrize(("ending", "status"), [("exit 7", 7), ("kill -SEGV $$", 139), (":", 0)])
def test_the_status_of_a_run_is_its_own(
    board: Board, tmp_path: Path, ending: str, status: int
) -> None:
    argv = ("sh", "-c", f"cat; {ending}")
    for feed, heard in (("prompt", b"a prompt\n"), ("none", b"")):
        done = board.run(
            "run", str(tmp_path / feed), "", "30", feed, "keep", *argv, stdin=b"a prompt\n"
        )
        assert (done.returncode, done.stdout) == (status, heard)
        assert not (tmp_path / feed / ".late").exists()


def test_a_program_that_is_not_there_is_named(board: Board, tmp_path: Path) -> None:
    work = str(tmp_path / "w")
    done = board.run("run", work, "", "30", "none", "clean", "no-such-program.exe")
    assert (done.returncode, b"no-such-program.exe" in done.stderr) == (127, True)
    assert not (tmp_path / "w").exists()
