"""Ways in which a blob can go: taken by Python, compressed, as what differs; real scripts."""

from __future__ import annotations

import gzip
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.content.delta import after, delta
from fleet.content.signatures import BLAKE2, CRC, XXH3, BlockSignature, hash_and_sign
from fleet.device.call import worker, worker_command
from fleet.model.errors import DiskFullError
from fleet.model.facts import Facts
from fleet.model.files import BLOCK_BYTES, FileRef, file_ref
from fleet.model.plan import Blob, Delta
from fleet.ops import upload
from fleet.ops.backend import backend_for
from fleet.ops.frames import GZIP_BYTES, Files, Style, frames

from .board import SHELLS, Board, flat, program

MIB = 1 << 20


@pytest.fixture(params=[*SHELLS[:4], "python"])
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Board:
    return Board(tmp_path, request.param)


@pytest.fixture
def python(tmp_path: Path) -> Board:
    return Board(tmp_path, "python")


def stream(board: Board, blob: Blob, **style: Any) -> bytes:
    return flat(
        frames([blob], lambda *_: None, Style(worker=backend_for(board.facts).worker, **style))
    )


def receive(board: Board, data: bytes, facts: Facts | None = None) -> tuple[upload.Receipt, bytes]:
    done = board.argv(backend_for(facts or board.facts).receive().argv, data)
    receipt = upload.Receipt()
    receipt.take(done.stdout)
    return receipt, done.stderr


def stored(board: Board, item: FileRef) -> Path:
    return board.base / "store" / item.sha256


def a_file(root: Path, name: str, data: bytes) -> FileRef:
    path = root / name
    path.write_bytes(data)
    return file_ref(path, name)


LARGE = 4 * MIB


def test_large_blobs_are_hashed_on_the_way(python: Board, tmp_path: Path) -> None:
    rng = random.Random(1)
    files = [a_file(tmp_path, f"f{n}", rng.randbytes(LARGE + n * 77)) for n in range(3)]
    files.append(a_file(tmp_path, "small", b"small"))
    style = Style(worker=worker())
    receipt, _ = receive(
        python, flat(frames([Blob(file) for file in files], lambda *_: None, style))
    )
    assert receipt.ok == {file.sha256 for file in files}
    for file in files:
        assert stored(python, file).read_bytes() == file.source.read_bytes()
        assert stored(python, file).stat().st_mode & 0o777 == 0o444


BROAD = 64 * MIB + 77  # from here on the hash tool of a device without Python follows


@pytest.fixture(params=SHELLS[:4])
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> Board:
    return Board(tmp_path, request.param)


def broad(tmp_path: Path, more: int = 0) -> FileRef:
    return a_file(tmp_path, "f", (random.Random(2).randbytes(MIB + 7) * 128)[: BROAD + more])


@pytest.mark.parametrize("offset", [0, 999_999, 7_654_321, 70 * MIB + 5])
def test_the_hash_tool_follows_what_arrives(bare: Board, tmp_path: Path, offset: int) -> None:
    item = broad(tmp_path, offset)
    seen = counting_tool(bare)
    if offset:
        receive(bare, flat(frames([Blob(item)], lambda *_: None, limit=offset)))
    receipt, errors = receive(bare, stream(bare, Blob(item, offset)))
    assert receipt.ok == {item.sha256}, errors
    assert stored(bare, item).read_bytes() == item.source.read_bytes()
    assert seen() == 1, "hashed once"


def test_of_a_cut_stream_no_hash_is_believed(bare: Board, tmp_path: Path) -> None:
    item = broad(tmp_path)
    seen = counting_tool(bare)
    receipt, _ = receive(bare, stream(bare, Blob(item))[: 40 * MIB])
    assert (receipt.cut, receipt.ok, receipt.bad, receipt.failed) == (True, set(), {}, "")
    assert seen() == 1, "it did not wait for the end"
    have = stored(bare, item).with_suffix(".part").stat().st_size
    assert 39 * MIB < have < 41 * MIB
    receipt, _ = receive(bare, stream(bare, Blob(item, have)))
    assert receipt.ok == {item.sha256}


def test_a_changed_byte_is_found_by_the_tool_that_follows(bare: Board, tmp_path: Path) -> None:
    item = broad(tmp_path)
    receipt, _ = receive(bare, stream(bare, Blob(item))[:-1] + b"x")
    assert list(receipt.bad) == [item.sha256]
    assert bare.store() == set()


def test_a_tool_that_stumbles_on_the_way_is_asked_again(bare: Board, tmp_path: Path) -> None:
    item = broad(tmp_path)
    seen = counting_tool(bare, "if [ $(wc -l < '{log}') = 1 ]; then exit 1; fi\n")
    receipt, errors = receive(bare, stream(bare, Blob(item)))
    assert receipt.ok == {item.sha256}, errors
    assert seen() == 2


def test_a_full_disk_is_called_so_with_the_tool_behind(tmp_path: Path) -> None:
    dash, item = Board(tmp_path, "dash"), broad(tmp_path)
    command = backend_for(dash.facts).receive()
    limited = ("sh", "-c", 'trap "" XFSZ; ulimit -f 20000; exec "$@"', "x", *command.argv)
    receipt = upload.Receipt()
    receipt.take(dash.argv(limited, stream(dash, Blob(item))).stdout)
    with pytest.raises(DiskFullError):
        receipt.check([Blob(item)], dash.facts, "board", "")


def counting_tool(board: Board, before: str = "") -> Callable[[], int]:
    """A sha256sum that counts its starts."""
    real, log = shutil.which("sha256sum"), board.tools / "log"
    board.tools.mkdir(exist_ok=True)
    log.touch()
    tool = board.tools / "sha256sum"
    text = f"#!/bin/sh\necho x >> '{log}'\n{before.format(log=log)}exec {real} \"$@\"\n"
    tool.write_text(text, "utf-8")
    tool.chmod(0o755)
    return lambda: len(log.read_text("utf-8").split())


def test_a_changed_byte_is_found(python: Board, tmp_path: Path) -> None:
    item = a_file(tmp_path, "f", bytes(LARGE))
    receipt, _ = receive(python, stream(python, Blob(item))[:-1] + b"x")
    assert list(receipt.bad) == [item.sha256]
    assert python.store() == set()


@pytest.mark.parametrize("seed", range(6))
def test_it_goes_on_at_the_byte(python: Board, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    item = a_file(tmp_path, "f", rng.randbytes(2 * LARGE))
    data = stream(python, Blob(item))
    cut = rng.randrange(len(worker()), len(data))
    receipt, _ = receive(python, data[:cut])
    assert not receipt.ok
    part = stored(python, item).with_suffix(".part")
    have = part.stat().st_size if part.exists() else 0
    assert have <= cut
    receipt, _ = receive(python, stream(python, Blob(item, have)))
    assert receipt.ok == {item.sha256}


def test_a_program_that_is_cut_does_nothing(python: Board, tmp_path: Path) -> None:
    data = stream(python, Blob(a_file(tmp_path, "f", b"x")))
    for cut in (0, 10, 5000, len(worker()) - 1):
        receipt, said = receive(python, data[:cut])
        assert (receipt.ok, receipt.failed, said) == (set(), "", b"")
    assert python.store() == set()


def test_a_stream_may_end_within_a_blob(python: Board, tmp_path: Path) -> None:
    """The first megabytes go one way, the rest another."""
    item = a_file(tmp_path, "f", random.Random(2).randbytes(3 * LARGE))
    seen: list[int] = []
    style = Style(worker=worker())
    first = frames([Blob(item)], lambda done, _: seen.append(done), style, limit=LARGE + 5)
    receipt, _ = receive(python, flat(first))
    assert not receipt.cut
    assert seen[-1] == LARGE + 5
    assert stored(python, item).with_suffix(".part").stat().st_size == LARGE + 5
    receipt, _ = receive(python, stream(python, Blob(item, LARGE + 5)))
    assert receipt.ok == {item.sha256}


def test_no_hash_tool_is_needed(python: Board, tmp_path: Path) -> None:
    item = a_file(tmp_path, "f", b"tiny")
    receipt, _ = receive(python, stream(python, Blob(item)), python.without(sha256=()))
    assert receipt.ok == {item.sha256}


def test_a_file_that_cannot_grow_is_said(python: Board, tmp_path: Path) -> None:
    item = a_file(tmp_path, "f", bytes(LARGE))
    command = backend_for(python.facts).receive()
    limited = ("sh", "-c", 'ulimit -f 2000; exec "$@"', "x", *command.argv)
    receipt = upload.Receipt()
    receipt.take(python.argv(limited, stream(python, Blob(item))).stdout)
    assert receipt.failed == "File too large"
    with pytest.raises(DiskFullError, match="File too large"):
        receipt.check([Blob(item)], python.facts, "board", "")
    assert python.store() == {f"{item.sha256}.part"}


def test_gzip_goes_in_pieces(board: Board, tmp_path: Path) -> None:
    text = b"".join(b"line %d of a library\n" % n for n in range(400_000))
    item = a_file(tmp_path, "lib.so", text)
    assert item.size > 2 * GZIP_BYTES
    wire: list[int] = []
    style = Style(worker=backend_for(board.facts).worker, gzip=frozenset([item.sha256]))
    data = flat(frames([Blob(item)], lambda _, sent: wire.append(sent), style))
    assert data.count(b" gzip ") == 3
    assert len(data) < item.size / 3
    assert wire[-1] == pytest.approx(len(data) - len(style.worker or b""), abs=1000)
    receipt, _ = receive(board, data)
    assert receipt.ok == {item.sha256}
    assert stored(board, item).read_bytes() == text


def test_pieces_leave_no_file_open(
    python: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleet.ops.frames.GZIP_BYTES", 1000)
    item = a_file(tmp_path, "f", os.urandom(100_000))
    command = backend_for(python.facts).receive()
    limited = ("sh", "-c", 'ulimit -n 30; exec "$@"', "x", *command.argv)
    data = stream(python, Blob(item), gzip=frozenset([item.sha256]))
    assert python.argv(limited, data).stdout.endswith(f"ok {item.sha256}\n".encode())


def test_gzip_goes_on_after_a_cut(board: Board, tmp_path: Path) -> None:
    text = b"".join(b"line %d of a library\n" % n for n in range(400_000))
    item = a_file(tmp_path, "lib.so", text)
    data = stream(board, Blob(item), gzip=frozenset([item.sha256]))
    head = len(program(board.facts))
    receipt, _ = receive(board, data[: head + (len(data) - head) * 2 // 3])
    assert not receipt.ok
    part = stored(board, item).with_suffix(".part")
    have = part.stat().st_size
    assert have >= GZIP_BYTES
    assert part.read_bytes() == text[:have]
    receipt, _ = receive(board, stream(board, Blob(item, have), gzip=frozenset([item.sha256])))
    assert receipt.ok == {item.sha256}


def test_compressed_once_for_all(tmp_path: Path) -> None:
    item = a_file(tmp_path, "lib.so", b"abc" * 100_000)
    style = Style(gzip=frozenset([item.sha256]), source=Files())
    (head, body) = flat(frames([Blob(item)], lambda *_: None, style)).split(b"\n", 1)
    assert gzip.decompress(body) == item.source.read_bytes()
    assert head.split()[-1] == str(item.size).encode()


RNG = random.Random(5)
OLD = RNG.randbytes(9 * MIB + 12_345)
VERSIONS = {
    "changed in the middle": OLD[: 4 * MIB] + RNG.randbytes(300_000) + OLD[4 * MIB + 300_000 :],
    "seven bytes more": OLD[: 2 * MIB + 5] + b"1234567" + OLD[2 * MIB + 5 :],
    "some bytes less": OLD[: 3 * MIB] + OLD[3 * MIB + 70_001 :],
    "longer": OLD + b"more" * 1000,
    "shorter": OLD[:-54_321],
    "halves changed places": OLD[4 * MIB :] + OLD[: 4 * MIB],
    "zeros before it": bytes(100_000) + OLD,
    "the same twice": OLD + OLD,
}


def rebuilt(found: Delta, old: bytes, new: bytes, start: int = 0) -> bytes:
    out = bytearray(new[:start])
    for piece in found.pieces:
        blocks = slice(piece.first * BLOCK_BYTES, (piece.first + piece.count) * BLOCK_BYTES)
        out += old[blocks] if piece.count else new[piece.start : piece.end]
        assert len(out) == piece.end
    return bytes(out)


@pytest.mark.parametrize("kind", [XXH3, BLAKE2, CRC])
@pytest.mark.parametrize("name", VERSIONS)
def test_what_differs(tmp_path: Path, name: str, kind: str) -> None:
    new = VERSIONS[name]
    item = a_file(tmp_path, "new", new)
    (tmp_path / "old").write_bytes(OLD)
    _, old = hash_and_sign(tmp_path / "old", kind)
    _, own = hash_and_sign(item.source, kind)
    found = delta(item, "0" * 64, old)
    assert found is not None
    assert found == delta(item, "0" * 64, old, own)
    assert found.bytes < 400_000
    assert rebuilt(found, OLD, new) == new
    for _ in range(30):
        start = RNG.randrange(len(new))
        assert rebuilt(after(found, start), OLD, new, start) == new


def test_another_content_is_sent_whole(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(OLD)
    _, old = hash_and_sign(tmp_path / "old")
    assert delta(a_file(tmp_path, "new", RNG.randbytes(9 * MIB)), "0" * 64, old) is None
    assert delta(a_file(tmp_path, "tiny", OLD[:MIB]), "0" * 64, old) is None
    assert delta(a_file(tmp_path, "any", OLD), "0" * 64, BlockSignature(0, b"")) is None


@pytest.mark.parametrize("name", VERSIONS)
def test_the_device_makes_it_out_of_the_old_one(board: Board, tmp_path: Path, name: str) -> None:
    first = a_file(tmp_path, "old", OLD)
    receive(board, stream(board, Blob(first)))
    item = a_file(tmp_path, "new", VERSIONS[name])
    _, old = hash_and_sign(first.source)
    found = delta(item, first.sha256, old)
    blob = Blob(item, 0, first.sha256, found)
    data = stream(board, blob)
    assert len(data) < 420_000 + len(program(board.facts))
    receipt, said = receive(board, data)
    assert receipt.ok == {item.sha256}, said
    assert stored(board, item).read_bytes() == VERSIONS[name]
    assert stored(board, first).read_bytes() == OLD
    cut = data[: len(data) - 3]
    stored(board, item).unlink()
    receipt, _ = receive(board, cut)
    have = stored(board, item).with_suffix(".part")
    size = have.stat().st_size if have.exists() else 0
    if not receipt.ok:
        rest = stream(board, replace(blob, offset=size))
        assert receive(board, rest)[0].ok == {item.sha256}


def test_a_damaged_old_blob_is_found_by_the_hash(board: Board, tmp_path: Path) -> None:
    first = a_file(tmp_path, "old", OLD)
    receive(board, stream(board, Blob(first)))
    stored(board, first).chmod(0o644)
    stored(board, first).write_bytes(b"x" + OLD[1:])
    item = a_file(tmp_path, "new", OLD + b"more")
    _, old = hash_and_sign(first.source)
    blob = Blob(item, 0, first.sha256, delta(item, first.sha256, old))
    receipt, _ = receive(board, stream(board, blob))
    assert list(receipt.bad) == [item.sha256]
    assert not stored(board, item).exists()


DAMAGES = {
    "other bytes": b"x" + OLD[1:],
    "shorter": OLD[: 2 * MIB + 5],
    "longer": OLD + bytes(100_000),
    "empty": b"",
}


@pytest.mark.parametrize("damage", [*DAMAGES, "gone", "a link"])
def test_an_old_blob_that_is_another_shows_by_the_hash(
    python: Board, tmp_path: Path, damage: str
) -> None:
    first = a_file(tmp_path, "old", OLD)
    assert receive(python, stream(python, Blob(first)))[0].ok
    path = stored(python, first)
    path.unlink()
    if damage in DAMAGES:
        path.write_bytes(DAMAGES[damage])
    elif damage == "a link":
        path.symlink_to("/dev/zero")
    new = OLD[:MIB] + b"others" + OLD[MIB + 6 :]  # its last block is copied, and a short one
    item = a_file(tmp_path, "new", new)
    found = delta(item, first.sha256, hash_and_sign(first.source)[1])
    assert found is not None
    receipt, _ = receive(python, stream(python, Blob(item, 0, first.sha256, found)))
    assert (receipt.cut, receipt.failed) == (False, "")
    assert set(receipt.ok if damage == "longer" else receipt.bad) == {item.sha256}
    assert python.store() <= {first.sha256, *receipt.ok}


def test_the_device_signs_as_the_host_does(python: Board, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(OLD)
    _, mine = hash_and_sign(path, CRC)
    command = worker_command(python.facts, "sign", str(path), str(BLOCK_BYTES))
    said = python.argv(command.argv, worker()).stdout.split()
    assert said[:2] == [CRC.encode(), str(len(OLD)).encode()]
    assert bytes.fromhex(b"".join(said[2:]).decode()) == mine.entries
