"""What differs of a large file goes while that is hashed: over a spare, or beside the old one."""

from __future__ import annotations

import os
import pickle
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fleet.content import hashes
from fleet.content.hashes import Hashing
from fleet.content.signatures import BlockSignature, Signatures, Signing, hash_and_sign
from fleet.content.sources import SourceFiles
from fleet.engine.transfer import upload
from fleet.engine.transfer.context import TransferContext, TransferOptions
from fleet.engine.transfer.deltas import with_known
from fleet.engine.transfer.speculative import SpeculativeAnswer, parse_speculative
from fleet.model.errors import DeviceError
from fleet.model.events import StepStarted, Warned
from fleet.model.facts import Facts, Tools
from fleet.model.files import BLOCK_BYTES, file_ref
from fleet.model.plan import Blob
from fleet.ops.streaming_delta import StreamingDelta, choose_recyclable
from tests.chaos import Chaos, Fault
from tests.ops.test_spares import rebuilt

from .conftest import Target
from .test_speculative import until

MIB = 1 << 20
DATA = random.Random(9).randbytes(48 * MIB)
PLAIN = TransferOptions(carrier="paramiko", compress="never")


def signed(root: Path, data: bytes) -> BlockSignature:
    path = root / "signed"
    path.write_bytes(data)
    return hash_and_sign(path)[1]


def fed(data: bytes, piece: int, upto: int | None = None) -> Signing:
    """A signing that another thread feeds."""
    signing = Signing()

    def feed() -> None:
        view = memoryview(data)
        for at in range(0, len(data) if upto is None else upto, piece):
            signing.update(view[at : at + piece])
            time.sleep(0.001)
        signing.end()

    threading.Thread(target=feed, daemon=True).start()
    return signing


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("spared", [True, False])
def test_the_pieces_make_the_new_content(tmp_path: Path, seed: int, spared: bool) -> None:
    rng = random.Random(seed)
    old = rng.randbytes(100 * BLOCK_BYTES + rng.randrange(BLOCK_BYTES))

    def other(changes: int) -> bytes:
        data = bytearray(old[: len(old) - rng.randrange(2 * BLOCK_BYTES)])
        for _ in range(changes):
            at = rng.randrange(len(data))
            data[at : at + 5] = b"patch"
        return bytes(data) + rng.randbytes(rng.randrange(2 * BLOCK_BYTES))

    new, spare = other(rng.randrange(1, 5)), other(9)
    part = fed(new, rng.choice((1, 7, 64)) * BLOCK_BYTES)
    found = StreamingDelta(len(new), part, "0" * 64, signed(tmp_path, old))
    if spared:
        found.spare, found.other = "1" * 64, signed(tmp_path, spare)
    pieces = tuple(found.pieces(0))
    assert found.whole
    assert rebuilt(pieces, old, spare, new) == new
    assert sum(one.bytes for one in pieces) <= 9 * BLOCK_BYTES
    start = rng.randrange(len(new))
    left = tuple(found.pieces(start))
    if left:
        assert rebuilt(left, old, spare, new, start) == new
    assert found.whole == bool(left)


def test_of_the_same_content_nothing_is_told(tmp_path: Path) -> None:
    data = DATA[: 3 * MIB]
    found = StreamingDelta(len(data), fed(data, MIB), "0" * 64, signed(tmp_path, data))
    assert list(found.pieces(0)) == []
    assert not found.whole


@pytest.mark.parametrize("spared", [True, False])
def test_it_stops_where_another_content_begins(tmp_path: Path, spared: bool) -> None:
    same, other = memoryview(DATA)[: 8 * MIB], memoryview(random.Random(1).randbytes(8 * MIB))
    old = signed(tmp_path, DATA[: 16 * MIB])
    signing = Signing()
    found = StreamingDelta(len(same) + len(other), signing, "0" * 64, old)
    if spared:
        found.spare, found.other = "1" * 64, old
    pieces = found.pieces(0)
    signing.update(same)
    before = [next(pieces)] if spared else []
    signing.update(other)
    signing.end()
    after = list(pieces)
    assert not found.whole
    assert [piece.end for piece in before] == [len(same)] * spared
    assert sum(piece.bytes for piece in before + after) <= (len(same) + len(other)) // 8


def test_a_reading_that_fails_stops_it(tmp_path: Path) -> None:
    old = signed(tmp_path, b"x" + DATA[1 : 4 * MIB])
    found = StreamingDelta(4 * MIB, fed(DATA[: 4 * MIB], MIB, 2 * MIB), "0" * 64, old)
    pieces = list(found.pieces(0))
    assert (pieces[-1].end, found.whole) == (2 * MIB, False)


def test_a_hash_that_fails_lets_nobody_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    path.write_bytes(DATA[: 4 * MIB])

    def broken(*_: object, **__: object) -> object:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(hashes, "hash_and_sign", broken)
    hashing = Hashing(path).start()
    found = StreamingDelta(4 * MIB, hashing.signing, "0" * 64, signed(tmp_path, DATA[: 4 * MIB]))
    told: list[object] = []
    waiting = threading.Thread(target=lambda: told.append([*found.pieces(0)]), daemon=True)
    waiting.start()
    waiting.join(20)
    assert told == [[]]


def test_one_spare_serves_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
    transfer = TransferContext()
    old, spare = patched(0), patched(MIB)
    for name, data in (("0" * 64, old), ("1" * 64, spare)):
        transfer.signatures.save(name, signed(tmp_path, data))
    blobs = []
    for number in (5, 6):
        path = tmp_path / f"{number}"
        path.write_bytes(patched(number * MIB))
        item = file_ref(path, f"{number}")
        transfer.signatures.save(item.sha256, hash_and_sign(path)[1])
        blobs.append(Blob(item, base="0" * 64, recyclable=("1" * 64,)))
    facts = Facts(tools=Tools(python3="/usr/bin/python3", dd_fullblock=True))
    found = with_known(transfer, facts, blobs)
    assert [one.delta.spare if one.delta else None for one in found] == ["1" * 64, ""]
    again = with_known(transfer, facts, [blobs[0], found[0]])
    assert again[0].delta is not None
    assert again[0].delta.spare == ""


def test_the_likest_spare_is_taken_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
    known = Signatures()
    half = len(DATA) // 2
    contents = {
        "a" * 64: DATA[: half + 9 * MIB] + bytes(half - 9 * MIB),
        "b" * 64: b"x" + DATA[1:],
        "c" * 64: DATA[: half - MIB] + bytes(half + MIB),
    }
    for sha, data in contents.items():
        known.save(sha, signed(tmp_path, data))
    old, recyclable = signed(tmp_path, DATA), [*contents, "d" * 64]
    taken = []
    for _ in range(4):
        found = StreamingDelta(len(DATA), Signing(), "0" * 64, old)
        choose_recyclable(found, recyclable, known)
        assert (found.other is None) == (found.spare == "")
        taken.append(found.spare[:1])
    assert taken == ["b", "a", "", ""]


def test_the_answer_is_read_strictly() -> None:
    sha = "a" * 64
    good = f"fleet-ahead 1\nk1 5\nold k2 {sha} 7\nspare {sha}\nend\n"
    assert parse_speculative(good, "board") == SpeculativeAnswer(
        {"k1": 5}, {"k2": (sha, 7)}, (sha,)
    )
    for line in ("old k2 ../x 7", f"old k2 {sha}", f"old k2 {sha} -1", "spare ../../x", "k1 x"):
        with pytest.raises(DeviceError, match="does not understand"):
            parse_speculative(f"fleet-ahead 1\n{line}\nend\n", "board")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A large file; no hash that is computed is known before a push has asked for it."""
    asked, true_late, true_start = threading.Event(), SourceFiles.late, SourceFiles.start

    def start(self: SourceFiles) -> SourceFiles:
        asked.clear()
        return true_start(self)

    def late(self: SourceFiles) -> object:
        found = true_late(self)
        asked.set()
        return found

    monkeypatch.setattr(SourceFiles, "start", start)
    monkeypatch.setattr(SourceFiles, "late", late)
    hashed_when(monkeypatch, asked.is_set)
    return tmp_path / "model.bin"


def write(model: Path, data: bytes | bytearray) -> None:
    model.write_bytes(data)
    os.utime(model, (1_000_000_000, 1_000_000_000))


def patched(*places: int) -> bytes:
    data = bytearray(DATA)
    for place in places:
        data[place : place + 5] = b"patch"
    return bytes(data)


def three(target: Target, model: Path) -> None:
    """Three versions: the first is a spare then."""
    for number in range(3):
        write(model, patched(number * MIB))
        done = target.push(model, transfer=PLAIN)
        assert done.outcome == "changed", done.error


def there(target: Target, kind: str) -> list[Path]:
    return [*(target.base / "store").glob(f"*.{kind}")]


def hashed_when(monkeypatch: pytest.MonkeyPatch, ready: Callable[[], object]) -> None:
    """All is read and signed, but the hash is known only once that is true."""

    def late(path: Path, *args: Any, **more: Any) -> object:
        found = hash_and_sign(path, *args, **more)
        until(ready)
        return found

    monkeypatch.setattr(hashes, "hash_and_sign", late)


def test_the_spare_is_the_new_version_before_its_hash_is_known(
    target: Target, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three(target, model)
    (spare,) = there(target, "spare")
    inode, new = spare.stat().st_ino, patched(30 * MIB)
    write(model, new)
    hashed_when(monkeypatch, lambda: [one.read_bytes() for one in there(target, "over")] == [new])
    done = target.push(model, transfer=PLAIN)
    assert (done.outcome, done.bytes_sent) == ("changed", BLOCK_BYTES), done.error
    assert (target.current / "model.bin").read_bytes() == new
    assert (target.current / "model.bin").resolve().stat().st_ino == inode
    says = [one.text for one in target.events if isinstance(one, StepStarted)]
    assert any("what differs of 1 files" in one for one in says)


@pytest.mark.parametrize("before", [b"", DATA])
def test_what_is_to_be_sent_is_plain_data_while_it_is_hashed(
    target: Target, model: Path, monkeypatch: pytest.MonkeyPatch, before: bytes
) -> None:
    if before:
        write(model, before)
        target.push(model, transfer=PLAIN)
    write(model, patched(30 * MIB))
    sent: list[Blob] = []
    true_send = upload.Upload.send

    def send(self: upload.Upload, blobs: Sequence[Blob], *more: Any, **how: Any) -> None:
        sent.extend(blobs)
        true_send(self, blobs, *more, **how)

    monkeypatch.setattr(upload.Upload, "send", send)
    done = target.push(model, transfer=PLAIN)
    assert done.outcome == "changed", done.error
    assert [blob.file.sha256[:5] for blob in sent][:1] == ["late-"]
    assert pickle.loads(pickle.dumps(sent)) == sent
    assert pickle.loads(pickle.dumps(done.plan)) == done.plan


def test_where_the_hash_is_known_the_spare_serves_as_well(target: Target, model: Path) -> None:
    """As in a deploy, whose bundle was hashed before."""
    three(target, model)
    (spare,) = there(target, "spare")
    inode, new = spare.stat().st_ino, patched(30 * MIB)
    write(model, new)
    cache = hashes.HashCache()
    cache.sha256(model)
    cache.save()
    target.events.clear()
    done = target.push(model, transfer=PLAIN)
    assert (done.outcome, done.bytes_sent) == ("changed", BLOCK_BYTES), done.error
    assert (target.current / "model.bin").read_bytes() == new
    assert (target.current / "model.bin").resolve().stat().st_ino == inode
    says = [one.text for one in target.events if isinstance(one, StepStarted)]
    assert not any("while they are hashed" in one for one in says)


def test_without_a_spare_the_copy_is_there_before_the_hash(
    target: Target, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(model, DATA)
    target.push(model, transfer=PLAIN)
    write(model, patched(30 * MIB))
    hashed_when(
        monkeypatch, lambda: [one.stat().st_size for one in there(target, "part")] == [len(DATA)]
    )
    done = target.push(model, transfer=PLAIN)
    assert (done.outcome, done.bytes_sent) == ("changed", BLOCK_BYTES), done.error
    assert (target.current / "model.bin").read_bytes() == patched(30 * MIB)


def identity(target: Target) -> tuple[int, int, int]:
    found = (target.current / "model.bin").resolve().stat()
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


@pytest.mark.parametrize("spared", [True, False])
def test_what_was_only_touched_is_not_sent(target: Target, model: Path, spared: bool) -> None:
    if spared:
        three(target, model)
    else:
        write(model, DATA)
        target.push(model, transfer=PLAIN)
    before = identity(target)
    os.utime(model, (1_100_000_000, 1_100_000_000))
    done = target.push(model, transfer=PLAIN)
    assert (done.outcome, done.bytes_sent) == ("unchanged", 0)
    assert identity(target) == before
    assert target.push(model, transfer=PLAIN).round_trips == 1, "the seal holds"


@pytest.mark.parametrize("spared", [True, False])
def test_cut_on_the_way_it_comes_all_the_same(
    target: Target, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spared: bool
) -> None:
    """What came into a spare so far is its beginning; the rest is copied from the live one."""
    monkeypatch.setattr(upload, "WAIT_SECONDS", 0.3)
    if spared:
        three(target, model)
    else:
        write(model, patched(2 * MIB))
        target.push(model, transfer=PLAIN)
    live = (target.current / "model.bin").resolve()
    new = DATA[: 8 * MIB] + random.Random(4).randbytes(5 * MIB) + DATA[13 * MIB :]
    write(model, new)
    with Chaos(int(target.host.port or 0), [Fault(cut=9 * MIB // 2)]) as link:
        target.host = link.through(target.host, tmp_path)
        done = target.push(model, transfer=PLAIN)
        assert done.outcome == "changed", done.error
        assert link.cuts == 1
        assert link.sent < 5 * MIB + 3.5 * MIB  # of 9.5 when it begins again
    assert live.read_bytes() == patched(2 * MIB)
    assert (target.current / "model.bin").read_bytes() == new
    assert there(target, "over") == there(target, "part") == []


def test_a_file_that_changes_meanwhile_is_sent_by_its_hash(
    target: Target, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three(target, model)
    write(model, patched(30 * MIB))
    calls: list[int] = []

    def changing(path: Path, *args: Any, **more: Any) -> object:
        calls.append(1)
        found = hash_and_sign(path, *args, **more)
        if len(calls) > 1:
            return found
        until(lambda: there(target, "over"))
        write(model, patched(31 * MIB))
        return hash_and_sign(path)

    monkeypatch.setattr(hashes, "hash_and_sign", changing)
    done = target.push(model, transfer=PLAIN)
    assert done.outcome == "changed", done.error
    assert (target.current / "model.bin").read_bytes() == patched(31 * MIB)
    assert any("sends it again" in one.text for one in target.events if isinstance(one, Warned))


def test_whole_is_whole(target: Target, model: Path) -> None:
    three(target, model)
    write(model, patched(30 * MIB))
    done = target.push(model, transfer=replace(PLAIN, whole=True))
    assert (done.outcome, done.bytes_sent) == ("changed", len(DATA)), done.error


@pytest.mark.parametrize("spared", [True, False])
def test_what_moved_waits_for_its_hash(target: Target, model: Path, spared: bool) -> None:
    """At its own place little is equal; then it is looked for elsewhere."""
    if spared:
        three(target, model)
    else:
        write(model, patched(2 * MIB))
        target.push(model, transfer=PLAIN)
    new = DATA[: 10 * MIB] + b"seven b" + DATA[10 * MIB :]
    write(model, new)
    done = target.push(model, transfer=PLAIN)
    assert done.outcome == "changed", done.error
    assert done.bytes_sent < len(new) // 8 + BLOCK_BYTES
    assert (target.current / "model.bin").read_bytes() == new


@pytest.mark.parametrize("spared", [True, False])
def test_another_content_costs_nothing_twice(target: Target, model: Path, spared: bool) -> None:
    if spared:
        three(target, model)
    else:
        write(model, DATA)
        target.push(model, transfer=PLAIN)
    new = random.Random(6).randbytes(len(DATA))
    write(model, new)
    done = target.push(model, transfer=PLAIN)
    assert (done.outcome, done.bytes_sent) == ("changed", len(new)), done.error
    assert (target.current / "model.bin").read_bytes() == new
