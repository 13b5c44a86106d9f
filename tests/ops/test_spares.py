"""Files that no release needs any more are made over into their successors, in their place."""

from __future__ import annotations

import hashlib
import mmap
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.content.delta import after, delta, in_place
from fleet.content.signatures import BlockSignature, hash_and_sign
from fleet.device.call import worker
from fleet.device.store import recycle
from fleet.model.files import BLOCK_BYTES, FileRef
from fleet.model.manifest import Manifest
from fleet.model.plan import Blob, Delta, Piece
from fleet.ops.backend import backend_for

from .board import Board, make_files
from .test_codings import OLD, RNG, VERSIONS, a_file, receive, stored, stream
from .test_killed import killed_at

MIB = 1 << 20
SPARE = OLD[:MIB] + RNG.randbytes(200_000) + OLD[MIB + 200_000 : 8 * MIB] + RNG.randbytes(9000)


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path, "python")


def signed(root: Path, name: str, data: bytes) -> tuple[FileRef, BlockSignature]:
    item = a_file(root, name, data)
    return item, hash_and_sign(item.source)[1]


def rebuilt(
    pieces: Sequence[Piece], base: bytes, spare: bytes, new: bytes, start: int = 0
) -> bytes:
    out = bytearray(new[:start])
    for piece in pieces:
        assert piece.start == len(out)
        blocks = slice(piece.first * BLOCK_BYTES, (piece.first + piece.count) * BLOCK_BYTES)
        there = spare if piece.stays else new
        out += base[blocks] if piece.count else there[piece.start : piece.end]
        assert len(out) == piece.end
    return bytes(out)


@pytest.mark.parametrize("name", VERSIONS)
@pytest.mark.parametrize("spare", [SPARE, OLD[: 3 * MIB + 7], OLD + bytes(300_000)])
def test_what_stays(tmp_path: Path, name: str, spare: bytes) -> None:
    item, new = signed(tmp_path, "new", VERSIONS[name])
    base, other = signed(tmp_path, "old", OLD)[1], signed(tmp_path, "spare", spare)[1]
    found = delta(item, "0" * 64, base)
    assert found is not None
    made = in_place(found, "1" * 64, other, new)
    assert rebuilt(made.pieces, OLD, spare, VERSIONS[name]) == VERSIONS[name]
    assert made.bytes <= found.bytes + (len(made.pieces) + 1) * BLOCK_BYTES
    if name == "changed in the middle":
        assert made.staying > item.size * (0.8 if spare is SPARE else 0.3)


@pytest.mark.parametrize("seed", range(20))
def test_what_stays_of_anything(tmp_path: Path, seed: int) -> None:
    """Contents of few different blocks, cut anywhere."""
    rng = random.Random(seed)
    blocks = [rng.randbytes(BLOCK_BYTES) for _ in range(4)]

    def content() -> bytes:
        data = b"".join(rng.choices(blocks, k=80))
        return data[: len(data) - rng.randrange(3 * BLOCK_BYTES)]

    old, spare, fresh = content(), content(), content()
    item, new = signed(tmp_path, "new", fresh)
    base = signed(tmp_path, "old", old)[1]
    found = delta(item, "", base) or Delta("", (Piece(0, item.size),))
    made = in_place(found, "", signed(tmp_path, "spare", spare)[1], new)
    assert rebuilt(made.pieces, old, spare, fresh) == fresh
    equal = sum(
        spare[at : at + BLOCK_BYTES] == fresh[at : at + BLOCK_BYTES]
        for at in range(0, len(fresh) - BLOCK_BYTES, BLOCK_BYTES)
    )
    assert made.staying >= equal * BLOCK_BYTES
    start = rng.randrange(len(fresh))
    left = after(found, start).pieces
    assert (left[0].start, left[-1].end) == (start, len(fresh))


def over(board: Board, root: Path, new: bytes) -> tuple[Blob, Path]:
    """A board with an old blob and a spare, and the next version as what differs from both."""
    old, base = signed(root, "old", OLD)
    spare, other = signed(root, "spare", SPARE)
    for file in (old, spare):
        assert receive(board, stream(board, Blob(file)))[0].ok
    place = stored(board, spare).with_name(f"{spare.sha256}.spare")
    stored(board, spare).rename(place)
    item, own = signed(root, "new", new)
    found = delta(item, old.sha256, base)
    assert found is not None
    return Blob(item, 0, old.sha256, in_place(found, spare.sha256, other, own)), place


@pytest.mark.parametrize("name", VERSIONS)
def test_a_spare_becomes_the_next_version(board: Board, tmp_path: Path, name: str) -> None:
    blob, spare = over(board, tmp_path, VERSIONS[name])
    inode = spare.stat().st_ino
    data = stream(board, blob)
    receipt, said = receive(board, data)
    assert receipt.ok == {blob.file.sha256}, said
    path = stored(board, blob.file)
    assert path.read_bytes() == VERSIONS[name]
    assert (path.stat().st_ino, path.stat().st_mode & 0o777) == (inode, 0o444)
    assert board.store() == {blob.file.sha256, blob.base}
    assert (board.base / "store" / blob.base).read_bytes() == OLD
    assert len(data) < 620_000 + len(worker())


@pytest.mark.parametrize("how", ["mapped", "open", "a second name"])
def test_what_somebody_still_reads_is_not_touched(board: Board, tmp_path: Path, how: str) -> None:
    """A service that was not restarted has the old model mapped."""
    blob, spare = over(board, tmp_path, VERSIONS["changed in the middle"])
    inode = spare.stat().st_ino
    with spare.open("rb") as reader:
        seen = mmap.mmap(reader.fileno(), 0, prot=mmap.PROT_READ)
        if how == "a second name":
            seen.close()
            os.link(spare, tmp_path / "mine")
        if how != "open":
            reader.close()
        receipt, said = receive(board, stream(board, blob))
        assert receipt.ok == {blob.file.sha256}, said
        kept = (tmp_path / "mine").read_bytes() if how == "a second name" else seen[:]
    assert kept == SPARE
    path = stored(board, blob.file)
    assert path.stat().st_ino != inode
    assert path.read_bytes() == VERSIONS["changed in the middle"]
    assert board.store() == {blob.file.sha256, blob.base}


@pytest.mark.parametrize("damage", ["other bytes", "shorter", "gone", "a link", "a folder"])
def test_a_spare_that_is_another_shows_by_the_hash(
    board: Board, tmp_path: Path, damage: str
) -> None:
    blob, spare = over(board, tmp_path, VERSIONS["changed in the middle"])
    outside = tmp_path / "outside"
    outside.write_bytes(SPARE)
    spare.unlink()
    if damage == "other bytes":
        spare.write_bytes(b"x" + SPARE[1:])
    elif damage == "shorter":
        spare.write_bytes(SPARE[: 2 * MIB])
    elif damage == "a link":
        spare.symlink_to(outside)
    elif damage == "a folder":
        spare.mkdir()
    receipt, said = receive(board, stream(board, blob))
    assert list(receipt.bad) == [blob.file.sha256], said
    assert (receipt.cut, receipt.failed) == (False, "")
    assert outside.read_bytes() == SPARE
    assert not stored(board, blob.file).exists()
    receipt, _ = receive(board, stream(board, Blob(blob.file)))
    assert receipt.ok == {blob.file.sha256}


def test_cut_anywhere_it_is_the_beginning_of_one(board: Board, tmp_path: Path) -> None:
    """What came so far is gone on with, out of the old blob."""
    blob, spare = over(board, tmp_path, VERSIONS["seven bytes more"])
    whole, rng = spare.read_bytes(), random.Random(3)
    data, base = stream(board, blob), signed(tmp_path, "old", OLD)[1]
    first = len(worker()) + data[len(worker()) :].index(b"\n") + 1
    last = len(data) - len("take 0 12345\ndone\n") - 12_352  # then nothing is lacking
    for cut in [first, *rng.choices(range(first, last), k=25), last]:
        receipt, said = receive(board, data[:cut])
        assert not receipt.ok, said
        assert receipt.cut
        part = stored(board, blob.file).with_suffix(".part")
        assert board.store() == {blob.base, part.name}
        assert (board.base / "store" / blob.base).read_bytes() == OLD
        have = part.stat().st_size
        assert part.read_bytes() == VERSIONS["seven bytes more"][:have]
        rest = replace(blob, offset=have, delta=delta(blob.file, blob.base, base))
        assert receive(board, stream(board, rest))[0].ok == {blob.file.sha256}
        stored(board, blob.file).unlink()
        spare.write_bytes(whole)
        spare.chmod(0o444)
    assert receive(board, data)[0].ok == {blob.file.sha256}


def test_killed_on_the_way_it_is_no_blob(board: Board, tmp_path: Path) -> None:
    """What a kill leaves is of no use to anybody, and goes with the next pruning."""
    blob, _ = over(board, tmp_path, VERSIONS["changed in the middle"])
    data, command = stream(board, blob), backend_for(board.facts).receive()
    with subprocess.Popen(command.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None
        running.stdin.write(data[: len(data) - 60_000])
        running.stdin.flush()
        left = stored(board, blob.file).with_suffix(".over")
        deadline = time.monotonic() + 20
        while not left.exists() or left.stat().st_size != blob.file.size:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
    assert board.store() == {blob.base, left.name}
    app = Manifest("app", make_files(tmp_path, {"a": OLD, "b": VERSIONS["longer"]}))
    state = board.state(app)
    assert state.have == {blob.base}
    assert not state.parts
    board.deploy(app)
    assert board.prune("2").returncode == 0
    assert board.store() == set(app.blobs)


@pytest.mark.parametrize("everything", [True, False])
def test_killed_before_each_change_of_the_disk(
    board: Board, tmp_path: Path, everything: bool
) -> None:
    blob, spare = over(board, tmp_path, VERSIONS["changed in the middle"])
    step = (backend_for(board.facts).receive().argv, stream(board, blob))
    whole, new = spare.read_bytes(), stored(board, blob.file)
    for at in range(1, 100):
        if not killed_at(board, step, at, everything=everything):
            break
        assert (board.base / "store" / blob.base).read_bytes() == OLD
        assert not new.exists() or new.read_bytes() == VERSIONS["changed in the middle"]
        assert not spare.exists() or spare.read_bytes() == whole
        left = board.store() - {blob.base, spare.name, blob.file.sha256}
        assert left <= {f"{blob.file.sha256}.over"}
        new.unlink(missing_ok=True)
        spare.unlink(missing_ok=True)
        spare.write_bytes(whole)
    assert at > 5
    assert new.read_bytes() == VERSIONS["changed in the middle"]


SMALL = recycle.LEAST - 1


def releases(board: Board, root: Path, sizes: list[int]) -> list[Manifest]:
    """Releases of one file each, of that many bytes, deployed one after the other."""
    rng, made = random.Random(1), []
    for number, size in enumerate(sizes):
        data = rng.randbytes(1000) * (size // 1000 + 1)
        made.append(Manifest("app", make_files(root, {"f": data[:size], "n": b"%d" % number})))
        board.deploy(made[-1])
        done = board.prune("2")
        assert done.stdout.endswith(b"pruned\n"), done.stderr
    return made


def blob_of(app: Manifest, name: str) -> str:
    return next(file.sha256 for file in app.files if file.name == name)


def test_what_is_large_stays_as_a_spare(board: Board, tmp_path: Path) -> None:
    large = recycle.LEAST
    apps = releases(board, tmp_path, [SMALL, large, large + 1, large + 2])
    used = {sha for app in apps[2:] for sha in app.blobs}
    spare = blob_of(apps[1], "f")
    assert board.store() == used | {f"{spare}.spare"}
    content = (board.base / "store" / f"{spare}.spare").read_bytes()
    assert hashlib.sha256(content).hexdigest() == spare
    lacking = Manifest("app", make_files(tmp_path, {"f": bytes(large)}))
    assert board.state(lacking).recyclable == (spare,)


@pytest.mark.parametrize("kind", ["dash", "busybox"])
def test_without_python_there_are_none(tmp_path: Path, kind: str) -> None:
    bare = Board(tmp_path, kind)
    apps = releases(bare, tmp_path, [recycle.LEAST + n for n in range(3)])
    assert bare.store() == {sha for app in apps[1:] for sha in app.blobs}
    left = bare.base / "store" / f"{'0' * 64}.spare"
    left.write_bytes(b"of a time when it had Python")
    assert bare.prune("2").returncode == 0
    assert not left.exists()


def test_the_new_ones_stay_within_a_share_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{n:064x}" for n in range(4)]
    for number, name in enumerate(names):
        path = tmp_path / (name if number >= 2 else f"{name}.spare")
        path.write_bytes(bytes(recycle.LEAST))
    (tmp_path / "odd.spare").write_bytes(bytes(recycle.LEAST))
    monkeypatch.setattr(recycle, "free", lambda _: recycle.LEAST * (3 * 4 - 2))
    recycle.keep(str(tmp_path), [path.name for path in tmp_path.iterdir()])
    assert {path.name for path in tmp_path.iterdir()} == {f"{names[n]}.spare" for n in (0, 2, 3)}
    monkeypatch.setattr(recycle, "free", lambda _: recycle.MARGIN + 100)
    recycle.give_way(str(tmp_path), 100)
    assert len(list(tmp_path.iterdir())) == 3
    recycle.give_way(str(tmp_path), 101)
    assert not list(tmp_path.iterdir())


def test_no_lease_is_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that gives none says nothing of who reads the file."""
    path = tmp_path / "f"
    path.write_bytes(b"x")
    with path.open("rb") as stream:
        assert recycle.alone(stream.fileno())

        def refuse(*_: object) -> int:
            raise OSError(22, "Invalid argument")

        monkeypatch.setattr("fcntl.fcntl", refuse)
        assert not recycle.alone(stream.fileno())
    assert sys.platform == "linux"
