"""Many small blobs in one archive: frames.py and receive.sh together, under every shell."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from fleet.model.manifest import Manifest
from fleet.model.plan import Blob
from fleet.ops import upload
from fleet.ops.backend import backend_for
from fleet.ops.batches import BATCH_BYTES, BATCH_FILES
from fleet.ops.frames import CHUNK, SMALL, Style, frames
from tests.transport.windows.board import board_of

from .board import KINDS, Board, flat, make_files

FAST = ("dash", "mksh", "python", "windows")


@pytest.fixture(params=(*KINDS, "windows"))
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Board:
    return board_of(request.param, tmp_path)


def blobs_of(root: Path, count: int, size: int = 500) -> list[Blob]:
    rng = random.Random(count)
    content = {f"data/{n}": rng.randbytes(rng.randrange(1, size)) for n in range(count)}
    content["bin/tool"] = b"#!/bin/sh\n"
    return [Blob(item) for item in make_files(root, content)]


def test_all_arrive_with_their_modes(board: Board, tmp_path: Path) -> None:
    blobs = [*blobs_of(tmp_path, BATCH_FILES + 40), *blobs_of_size(tmp_path, SMALL + 1)]
    receipt = board.send(blobs, batches=True)
    receipt.check(blobs, board.facts, "board", "")
    assert board.store() == {blob.file.sha256 for blob in blobs}
    for blob in blobs:
        path = board.base / "store" / blob.file.sha256
        assert path.read_bytes() == blob.file.source.read_bytes()
        assert path.stat().st_mode & 0o777 == (0o555 if blob.file.executable else 0o444)


def blobs_of_size(root: Path, size: int) -> list[Blob]:
    return [Blob(item) for item in make_files(root, {"lib/large": b"x" * size})]


def test_a_byte_that_changed_on_the_way_is_found(board: Board, tmp_path: Path) -> None:
    blobs = blobs_of(tmp_path, 20)
    victim = blobs[7].file
    style = Style(batches=True, worker=backend_for(board.facts).worker)
    data = flat(frames(blobs, lambda *_: None, style))
    content = victim.source.read_bytes()
    data = data.replace(content, bytes([content[0] ^ 1]) + content[1:])
    done = board.do(backend_for(board.facts).receive(), data)
    receipt = upload.Receipt()
    receipt.take(done.stdout)
    assert set(receipt.bad) == {victim.sha256}
    assert board.store() == {blob.file.sha256 for blob in blobs} - {victim.sha256}


@pytest.mark.parametrize("seed", range(12))
def test_a_cut_leaves_only_whole_blobs(board: Board, tmp_path: Path, seed: int) -> None:
    blobs = blobs_of(tmp_path, 60)
    data = flat(frames(blobs, lambda *_: None, Style(batches=True)))
    board.send(blobs, cut=random.Random(seed).randrange(len(data)), batches=True)
    for name in board.store() - {".batch.part"}:
        good = next(blob.file for blob in blobs if blob.file.sha256 == name)
        assert (board.base / "store" / name).read_bytes() == good.source.read_bytes()
    again = board.send(blobs, batches=True)
    again.check(blobs, board.facts, "board", "")
    assert board.store() == {blob.file.sha256 for blob in blobs}


def test_a_store_that_cannot_be_written_says_why(board: Board, tmp_path: Path) -> None:
    blobs = blobs_of(tmp_path, 5)
    store = board.base / "store"
    store.mkdir(parents=True)
    (store / ".batch.part").mkdir()
    (store / ".batch.part").rmdir()
    store.rmdir()
    store.write_text("a file stands here")
    receipt = board.send(blobs, batches=True)
    assert "store" in receipt.failed
    assert not receipt.ok


def test_batches_are_small(tmp_path: Path) -> None:
    blobs = blobs_of(tmp_path, 2100, size=9000)
    seen: list[int] = []
    data = flat(frames(blobs, lambda done, _: seen.append(done), Style(batches=True)))
    counts = [int(count) for count in re.findall(rb"batch ([0-9]+) tar 0 [0-9]+ [0-9]+\n", data)]
    assert sum(counts) == 2101
    assert len(counts) >= 3
    assert all(count <= BATCH_FILES for count in counts)
    payload = sum(blob.file.size for blob in blobs)
    assert seen[-1] == payload
    assert seen == sorted(seen)
    assert len(data) < payload + len(blobs) * 1100 + BATCH_BYTES


def test_chunks_are_gathered(tmp_path: Path) -> None:
    blobs = blobs_of(tmp_path, 400)
    chunks = list(frames(blobs, lambda *_: None))
    assert all(len(chunk) >= CHUNK for chunk in chunks[:-1])
    assert len(chunks) == 1
    assert b"batch" not in flat(chunks)


@pytest.mark.parametrize(
    "board",
    [*FAST, *(pytest.param(one, marks=pytest.mark.slow) for one in KINDS if one not in FAST)],
    indirect=True,
)
def test_a_link_a_blob_and_a_size_that_differ_are_found_among_many(
    board: Board, tmp_path: Path
) -> None:
    """Groups are asked at once; the odd ones must still be told apart."""
    files = make_files(tmp_path, {f"data/a b {n}": b"%d" % n for n in range(250)})
    app = Manifest("app", files)
    board.deploy(app)
    whole = board.state(app)
    assert whole.have == app.blobs.keys()
    assert (whole.unlinked, whole.bad) == (frozenset(), frozenset())
    links = board.base / "releases" / "app" / app.id
    store = board.base / "store"
    (links / files[3].name).unlink()
    (links / files[140].name).unlink()
    (links / files[140].name).symlink_to("elsewhere")
    (store / files[90].sha256).unlink()
    (store / files[200].sha256).chmod(0o644)
    (store / files[200].sha256).write_bytes(b"longer than before")
    seen = board.state(app)
    assert seen.unlinked == {files[n].sha256 for n in (3, 90, 140)}
    assert seen.bad == {files[200].sha256}
    assert seen.have == app.blobs.keys() - {files[90].sha256, files[200].sha256}
    (store / files[201].sha256).chmod(0o644)
    (store / files[201].sha256).write_bytes(b"x" * files[201].size)
    times = (store / files[0].sha256).stat()
    for name in (files[200].sha256, files[201].sha256):
        os.utime(store / name, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert files[201].sha256 in board.state(app).have
    assert board.state(app, verify=True).bad == {files[n].sha256 for n in (200, 201)}
    board.deploy(app)
    repaired = board.state(app)
    assert repaired.unlinked == set()
