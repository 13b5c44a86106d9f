"""Blobs whose hash follows them: the scripts answer as the Python program does."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from fleet.engine.transfer import speculative
from fleet.model.files import FileRef, file_ref
from fleet.model.plan import Blob
from fleet.ops import upload
from fleet.ops.backend import backend_for
from fleet.ops.frames import Style, Unhashed, frames

from .board import KINDS, Board, flat, manifest, program

MIB = 1 << 20
KEY = "late-" + "5" * 32
OTHER = "late-" + "6" * 32


@pytest.fixture(params=KINDS)
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Board:
    return Board(tmp_path, request.param)


def a_file(tmp_path: Path, size: int = 300_000) -> FileRef:
    path = tmp_path / "model"
    path.write_bytes(random.Random(size).randbytes(size))
    return file_ref(path, "model")


def late(board: Board, item: FileRef, sha256: str, *packed: str) -> bytes:
    """The stream of a file whose hash follows it; `packed`: what of it is compressed."""
    blob = Blob(replace(item, sha256=KEY))
    return stream(board, blob, {KEY: Unhashed(lambda: sha256)}, frozenset(packed))


def stream(
    board: Board,
    blob: Blob,
    unhashed: Mapping[str, Unhashed] = MappingProxyType({}),
    gzip: frozenset[str] = frozenset(),
) -> bytes:
    style = Style(worker=backend_for(board.facts).worker, gzip=gzip, unhashed=unhashed)
    return flat(frames([blob], lambda *_: None, style))


def receive(board: Board, data: bytes) -> upload.Receipt:
    done = board.argv(backend_for(board.facts).receive().argv, data)
    receipt = upload.Receipt()
    receipt.take(done.stdout)
    return receipt


@pytest.mark.parametrize("size", [300_000, 64 * MIB + 77])
def test_it_gets_the_name_that_follows(board: Board, tmp_path: Path, size: int) -> None:
    item = a_file(tmp_path, size)
    receipt = receive(board, late(board, item, item.sha256))
    assert (receipt.ok, receipt.cut, receipt.failed) == ({item.sha256}, False, "")
    assert board.store() == {item.sha256}
    stored = board.base / "store" / item.sha256
    assert stored.read_bytes() == item.source.read_bytes()
    assert stored.stat().st_mode & 0o777 == 0o444


@pytest.mark.parametrize("size", [300_000, 64 * MIB + 77])
def test_another_content_never_gets_it(board: Board, tmp_path: Path, size: int) -> None:
    item = a_file(tmp_path, size)
    receipt = receive(board, late(board, item, "a" * 64))
    assert (receipt.ok, receipt.bad) == (set(), {"a" * 64: item.sha256})
    assert board.store() == set()


def test_compressed_pieces_come_together(board: Board, tmp_path: Path) -> None:
    item = a_file(tmp_path, 9 * MIB)
    assert receive(board, late(board, item, item.sha256, KEY)).ok == {item.sha256}


@pytest.mark.parametrize("lacking", [1, 30, 65, 68, 100, 5000])
def test_without_its_hash_it_stays_a_part(board: Board, tmp_path: Path, lacking: int) -> None:
    """A cut in that line, before it, and in the content."""
    item = a_file(tmp_path)
    receipt = receive(board, late(board, item, item.sha256)[:-lacking])
    assert receipt.ok == set()
    assert board.store() == {f"{KEY}.part"}


def test_the_next_one_goes_on_under_the_hash(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then the hash is known; the part still has the other name."""
    app = manifest(tmp_path / "src", {"model": b"x" * 500_000, "tool": b"1"})
    item = next(file for file in app.files if file.name == "model")
    receive(board, late(board, item, item.sha256)[: -len(b"is \n") - 64 - 200_000])
    monkeypatch.setattr("fleet.ops.backend.key_of", lambda file: KEY if file is item else "")
    state = board.state(app)
    have = state.parts[item.sha256]
    assert 200_000 < have <= 300_000
    assert (state.keys, set(state.parts)) == ({item.sha256: KEY}, {item.sha256})
    rest = Blob(item, have, part=KEY)
    assert len(stream(board, rest)) < len(program(board.facts)) + 300_500
    assert receive(board, stream(board, rest)).ok == {item.sha256}
    assert board.store() == {item.sha256}
    assert (board.base / "store" / item.sha256).read_bytes() == b"x" * 500_000


def test_what_may_go_ahead(board: Board) -> None:
    """Not what has the size of a blob, nor what has a name of the live release."""
    store, live = board.base / "store", board.base / "current" / "app"
    store.mkdir(parents=True)
    live.mkdir(parents=True)
    (store / ("a" * 64)).write_bytes(b"1" * 70_000)
    (store / f"{'b' * 64}.part").write_bytes(b"1" * 80_000)
    (store / f"{OTHER}.part").write_bytes(b"1" * 1234)
    (live / "dangling").symlink_to("nowhere")
    (live / "old").write_bytes(b"")
    asked = [
        ("1", 70_000, "size of a blob"),
        ("2", 80_000, "size of a part"),
        (OTHER, 7_000, "begun"),
        ("3", 17_000, "in 'odd' $x é"),
        ("4", 9_000, "old"),
        ("5", 9_000, "dangling"),
        ("6", 4_294_967_296_000, "more than 32 bits"),
    ]
    files = [FileRef(Path("x"), name, size, key) for key, size, name in asked]
    assert answer(board, files) == {"2": 0, OTHER: 1234, "3": 0, "6": 0}


def test_a_device_without_a_store_lacks_all(board: Board) -> None:
    assert answer(board, [FileRef(Path("x"), "f", 5, KEY)]) == {KEY: 0}


def test_without_stat_nothing_goes_ahead(tmp_path: Path) -> None:
    board = Board(tmp_path, "dash")
    (board.base / "store").mkdir(parents=True)
    (board.base / "store" / ("a" * 64)).write_bytes(b"1")
    board.tools.mkdir()
    (board.tools / "stat").write_text("#!/bin/sh\nexit 127\n")
    (board.tools / "stat").chmod(0o755)
    assert answer(board, [FileRef(Path("x"), "f", 5, KEY)]) == {}


def answer(board: Board, files: list[FileRef]) -> dict[str, int]:
    asked = backend_for(board.facts).speculative("app", files)
    done = board.argv(asked.command.argv, b"".join(asked.stdin))
    return speculative.parse_speculative(done.stdout.decode(), "board").free


def test_a_given_up_part_is_pruned(board: Board, tmp_path: Path) -> None:
    board.deploy(manifest(tmp_path / "src", {"f": b"1"}))
    (board.base / "store" / f"{KEY}.part").write_bytes(b"begun")
    (board.base / "store" / f"{'b' * 64}.part").write_bytes(b"begun")
    before = board.store()
    assert board.prune("2").returncode == 0
    assert board.store() == before - {f"{KEY}.part"}


def test_who_takes_such_blobs(board: Board, tmp_path: Path) -> None:
    assert backend_for(board.facts).late
    python = bool(board.facts.tools.python3)
    assert backend_for(board.without(sha256=())).late == python
    assert backend_for(board.without(dd_fullblock=False)).late == python
    app = manifest(tmp_path / "src", {"f": b"1"})
    assert b"\t-\tf\n" in b"".join(backend_for(board.facts).state(app).stdin)
