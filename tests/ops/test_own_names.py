"""Files of a release that are named like fleet's own: what a device makes of them."""

from __future__ import annotations

import os
import re
from importlib.resources import files
from pathlib import Path

import pytest

from fleet.device.store.files import put
from fleet.model.own_names import PASSING, own_name
from fleet.model.plan import Blob

from .board import KINDS, SHELLS, Board, manifest

PUBLIC = b"a library that many releases have\n" * 100
PROGRAMS = {
    "fleet.device.sh.store": ("stage.sh", "stage_tar.sh", "switch.sh", "state.sh", "stamp.sh"),
    "fleet.device.store": ("release.py", "stamp.py", "links_posix.py", "links_windows.py"),
}
ROOTS = r"(?:\$rel|\$new|\{rel\}|\{place\}|\{release\}|(?:rel|new) \+ \"|-C \"\$new\")"


@pytest.fixture(params=KINDS)
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Board:
    return Board(tmp_path, request.param)


@pytest.mark.parametrize("name", ["env.sh", "manifest.json", ".installed", ".seal"])
def test_a_temporary_file_is_never_a_link_that_somebody_put_there(
    board: Board, tmp_path: Path, name: str
) -> None:
    """As root all of it could be written: here the blobs can be, whoever runs this."""
    victim = manifest(tmp_path / "victim", {"data.bin": PUBLIC})
    board.deploy(victim)
    (blob,) = victim.blobs
    (board.base / "store" / blob).chmod(0o644)
    hostile = manifest(tmp_path / "hostile", {f"{name}.new": PUBLIC, "more": b"x"})
    board.send([Blob(item) for sha, item in hostile.blobs.items() if sha != blob])
    board.stage(hostile)
    board.switch(hostile)
    assert (board.base / "store" / blob).read_bytes() == PUBLIC


@pytest.mark.parametrize("shell", [kind for kind in SHELLS if "+" not in kind])
def test_what_a_killed_one_left_is_never_installed(tmp_path: Path, shell: str) -> None:
    """The input of the next one ends before its manifest: a link that broke."""
    board, app = Board(tmp_path, shell), manifest(tmp_path / "src", {"data.bin": PUBLIC})
    board.deploy(app)
    rel = board.base / "releases" / "app" / app.id
    whole = {name: (rel / name).read_text() for name in ("env.sh", "manifest.json")}
    for name, text in whole.items():
        (rel / f"{name}.new").write_text(text[: len(text) // 2])
    done = board.run("stage", str(board.base), "app", app.id, "r2", stdin=b"d\tlib\n")
    assert {name: (rel / name).read_text() for name in whole} == whole
    assert done.returncode == 74
    assert b"staged" not in done.stdout
    assert board.stage(app).returncode == 0


@pytest.mark.parametrize("end", ["", ".new"])
def test_a_link_that_a_killed_one_left_is_in_nobodys_way(
    board: Board, tmp_path: Path, end: str
) -> None:
    app = manifest(tmp_path / "src", {"data.bin": PUBLIC})
    board.deploy(app)
    rel, aside = board.base / "releases" / "app" / app.id, tmp_path / "aside"
    aside.write_text("mine")
    for name in ("env.sh", "manifest.json", ".installed", ".seal"):
        (rel / f"{name}{end}").unlink(missing_ok=True)
        (rel / f"{name}{end}").symlink_to(aside)
    if not end:
        (rel / "manifest.json").unlink()
    assert board.stage(app).returncode == 0
    assert board.switch(app).returncode == 0
    assert aside.read_text() == "mine"
    assert board.state(app).sealed


def test_the_history_of_another_release_is_no_temporary_file(tmp_path: Path) -> None:
    board = Board(tmp_path, "python")
    (board.base / "history").mkdir(parents=True)
    other = board.base / "history" / "app.new"  # of a release that is named so
    other.write_text("0123456789abcdef\n")
    board.deploy(manifest(tmp_path / "src", {"f": b"f"}))
    assert other.read_text() == "0123456789abcdef\n"


def test_all_names_of_the_device_programs_are_known() -> None:
    """Each name that one of them has at the root of a release cannot be a pushed file's."""
    found = set()
    for room, programs in PROGRAMS.items():
        for program in programs:
            text = (files(room) / program).read_text("utf-8")
            found |= set(re.findall(ROOTS + r"/(\.?[a-z][a-z.-]*[a-z0-9])\b", text))
            found |= set(re.findall(r'env = "([a-z0-9.]+)"', text))
            found |= set(re.findall(r"! -name '?(\.[a-z.*]+[a-z*])", text))
    assert {"env.sh", "env.ps1", "manifest.json", ".installed", ".seal", ".files"} <= found
    assert {".seal.new", ".installed.new", ".new-link", ".end"} <= found
    for name in found:
        assert own_name(name), name
        assert own_name(f"{name}.new") or name.endswith(".new") or name in PASSING, name


@pytest.mark.parametrize("name", [".seal-mine", "lib/.sealed"])
def test_the_seal_leaves_out_nothing_but_itself(board: Board, tmp_path: Path, name: str) -> None:
    """Of a release of an earlier fleet, say."""
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
