"""`fleet push` on a real sshd: whole, once, as what differs, by every carrier."""

from __future__ import annotations

import os
import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.content.hashes import HashCache
from fleet.engine.transfer import carriers, context
from fleet.engine.transfer.context import TransferOptions
from fleet.engine.transfer.upload import Upload
from fleet.model.deadline import Deadline
from fleet.model.errors import InputError
from fleet.model.events import Chosen, Warned
from fleet.model.plan import Blob
from fleet.transport.base import Carrier
from fleet.transport.sshclient import SshClient, client

from .conftest import Target

MIB = 1 << 20
RNG = random.Random(3)
LARGE = RNG.randbytes(40 * MIB)


def a_folder(root: Path, count: int = 30) -> Path:
    source = root / "source"
    for n in range(count):
        path = source / f"dir {n % 3}" / f"file '{n}'.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"%d" % n * n)
    tool = source / "tool.sh"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    return source


def same(source: Path, there: Path) -> bool:
    mine = {p.relative_to(source): p.read_bytes() for p in source.rglob("*") if p.is_file()}
    return all((there / name).read_bytes() == data for name, data in mine.items())


def test_a_folder_and_nothing_the_second_time(target: Target, tmp_path: Path) -> None:
    source = a_folder(tmp_path)
    first = target.push(source)
    assert first.outcome == "changed", first.error
    assert same(source, target.current)
    assert os.access(target.current / "tool.sh", os.X_OK)
    assert first.round_trips == 3  # facts, lease, send to lease back
    again = target.push(source)
    assert (again.outcome, again.bytes_sent, again.round_trips) == ("unchanged", 0, 1)


def test_a_changed_file_comes_and_the_old_release_stays(target: Target, tmp_path: Path) -> None:
    source = a_folder(tmp_path)
    target.push(source)
    before = target.current.resolve()
    (source / "dir 1" / "file '1'.txt").write_text("new")
    done = target.push(source)
    assert (done.outcome, done.bytes_sent) == ("changed", 3)
    assert done.round_trips == 4  # seal, facts, lease and state, send to lease back
    assert (target.current / "dir 1" / "file '1'.txt").read_text() == "new"
    assert (before / "dir 1" / "file '1'.txt").read_text() == "1"


def test_what_was_changed_on_the_device_is_put_right(target: Target, tmp_path: Path) -> None:
    source = a_folder(tmp_path)
    target.push(source)
    blob = (target.current / "dir 2" / "file '29'.txt").resolve()
    blob.chmod(0o644)
    blob.write_bytes(b"x" * blob.stat().st_size)
    os.utime(blob, ns=((2**31 - 10) * 10**9,) * 2)
    done = target.push(source)
    assert done.outcome == "changed", done.error
    assert same(source, target.current)


@pytest.mark.parametrize("carrier", ["paramiko", "ssh", "auto"])
def test_every_carrier_brings_it_whole(target: Target, tmp_path: Path, carrier: str) -> None:
    if not client():
        pytest.skip("no ssh client with AES-GCM here")
    source = tmp_path / "model.bin"
    source.write_bytes(LARGE)
    done = target.push(source, transfer=TransferOptions(carrier=carrier, compress="never"))
    assert done.outcome == "changed", done.error
    assert (target.current / "model.bin").read_bytes() == LARGE
    assert done.bytes_sent == len(LARGE)
    chosen = [one.carrier for one in target.events if isinstance(one, Chosen)]
    assert chosen == [carrier] if carrier != "auto" else len(chosen) == 1


@pytest.mark.parametrize("compress", ["never", "auto"])
def test_a_client_that_comes_late_goes_on_in_the_middle(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compress: str
) -> None:
    """Nothing is sent twice for it, small files beside it neither."""
    if not client():
        pytest.skip("no ssh client with AES-GCM here")
    begun = threading.Event()
    connect, piece = SshClient.open, Upload._try

    def late(self: SshClient, deadline: Deadline) -> None:
        assert begun.wait(10)
        connect(self, deadline)

    def sent(self: Upload, blob: Blob, count: int, carrier: Carrier) -> float:
        begun.set()
        return piece(self, blob, count, carrier)

    monkeypatch.setattr(SshClient, "open", late)
    monkeypatch.setattr(Upload, "_try", sent)
    monkeypatch.setattr(carriers, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(carriers, "PIECE_BYTES", MIB)
    monkeypatch.setattr(context, "WORTH", 1e9)  # however quick the link is here
    source = a_folder(tmp_path)
    content = LARGE if compress == "never" else RNG.randbytes(MIB) + bytes(47 * MIB)
    (source / "model.bin").write_bytes(content)
    done = target.push(source, transfer=TransferOptions(compress=compress))
    assert done.outcome == "changed", done.error
    assert same(source, target.current)
    size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    assert done.bytes_sent == size if compress == "never" else done.bytes_sent < size
    (chosen,) = (one for one in target.events if isinstance(one, Chosen))
    assert chosen.carrier in {"ssh", "paramiko"}  # a loaded machine may connect too late


def test_the_ssh_client_believes_no_other_key(target: Target, tmp_path: Path) -> None:
    """It gets the key of the open connection, and nothing of the user's known_hosts."""
    from fleet.model.deadline import Deadline
    from fleet.model.errors import UnreachableError
    from fleet.transport.ssh import SshTransport
    from fleet.transport.sshclient import SshClient

    link = SshTransport(target.host)
    link.open(Deadline(10))
    (hop,) = link.hops()
    other = (target.server.folder / "id.pub").read_text().split()[:2]
    wrong = SshClient((replace(hop, known=(" ".join(other),)),), link.traffic, "board")
    with pytest.raises(UnreachableError, match="Host key verification failed"):
        wrong.open(Deadline(10))
    link.close()


def test_only_what_differs_of_a_large_file(target: Target, tmp_path: Path) -> None:
    source = tmp_path / "model.bin"
    source.write_bytes(LARGE)
    target.push(source)
    source.write_bytes(LARGE[: 9 * MIB] + b"patch" + LARGE[9 * MIB :])
    done = target.push(source)
    assert done.outcome == "changed", done.error
    assert done.bytes_sent < 100_000
    assert (target.current / "model.bin").read_bytes() == source.read_bytes()


def test_the_device_signs_what_this_workstation_never_hashed(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "model.bin"
    source.write_bytes(LARGE)
    target.push(source)
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "another home"))
    source.write_bytes(LARGE[: 9 * MIB] + b"patch" + LARGE[9 * MIB :])
    done = target.push(source)
    assert done.outcome == "changed", done.error
    assert done.bytes_sent < 100_000
    assert (target.current / "model.bin").read_bytes() == source.read_bytes()


def test_a_damaged_old_version_is_no_ground_to_build_on(target: Target, tmp_path: Path) -> None:
    source = tmp_path / "model.bin"
    source.write_bytes(LARGE)
    target.push(source)
    old = (target.current / "model.bin").resolve()
    damage(old)
    source.write_bytes(LARGE + b"more")
    done = target.push(source)
    assert done.outcome == "changed", done.error
    assert done.bytes_sent >= len(LARGE)
    assert (target.current / "model.bin").read_bytes() == LARGE + b"more"
    assert any(
        "sends the file completely" in one.text for one in target.events if isinstance(one, Warned)
    )


def damage(path: Path) -> None:
    path.chmod(0o644)
    with path.open("r+b") as stream:
        stream.seek(5 * MIB)
        stream.write(b"damage")


def versions(source: Path, target: Target, places: tuple[int, ...]) -> list[int]:
    """One push for each place where a few bytes are written anew; the bytes that were sent."""
    sent, content = [], bytearray(LARGE)
    for place in places:
        content[place : place + 5] = b"patch"
        source.write_bytes(content)
        done = target.push(source)
        assert done.outcome == "changed", done.error
        sent.append(done.bytes_sent)
    return sent


def test_the_third_version_is_written_over_the_first(target: Target, tmp_path: Path) -> None:
    """Three are pushed before one is no longer needed; it becomes the fourth, and so on."""
    source = tmp_path / "model.bin"
    inodes = []
    for place in (0, 9 * MIB, 20 * MIB, 30 * MIB, 7):
        sent = versions(source, target, (place,))
        inodes.append((target.current / "model.bin").resolve().stat().st_ino)
        assert (target.current / "model.bin").read_bytes() == source.read_bytes()
        assert sent[0] < 200_000 or len(inodes) == 1
    assert inodes[3:] == inodes[:2]
    store = [one.suffix for one in (target.base / "store").iterdir()]
    assert sorted(store) == ["", "", ".spare"]


@pytest.mark.parametrize("damaged", [False, True])
def test_what_is_a_spare_is_not_sent_again(target: Target, tmp_path: Path, damaged: bool) -> None:
    source = tmp_path / "model.bin"
    for number in range(3):
        source.write_bytes(random.Random(number).randbytes(20 * MIB))
        assert target.push(source).outcome == "changed"
    first = random.Random(0).randbytes(20 * MIB)
    source.rename(tmp_path / "other.bin")
    (tmp_path / "again.bin").write_bytes(first)
    if damaged:
        (spare,) = (target.base / "store").glob("*.spare")
        damage(spare)
    done = target.push(tmp_path / "again.bin")
    assert (done.outcome, done.bytes_sent) == ("changed", len(first) if damaged else 0), done.error
    assert (target.current / "again.bin").read_bytes() == first


def test_a_damaged_spare_costs_a_second_sending(target: Target, tmp_path: Path) -> None:
    source = tmp_path / "model.bin"
    versions(source, target, (0, 9 * MIB, 20 * MIB))
    (spare,) = (target.base / "store").glob("*.spare")
    damage(spare)
    versions(source, target, (30 * MIB,))
    assert (target.current / "model.bin").read_bytes() == source.read_bytes()
    # By the hash once it is known, or as the next test where it was known before.
    words = [one.text for one in target.events if isinstance(one, Warned)]
    assert any("fleet sends" in one for one in words)


def test_with_a_damaged_spare_what_differs_from_the_live_one_is_sent(
    target: Target, tmp_path: Path
) -> None:
    """Where the hash was known before, as in a deploy."""
    source = tmp_path / "model.bin"
    versions(source, target, (0, 9 * MIB, 20 * MIB))
    (spare,) = (target.base / "store").glob("*.spare")
    damage(spare)
    with source.open("r+b") as stream:
        stream.seek(30 * MIB)
        stream.write(b"patch")
    os.utime(source, (1, 1))  # what changed just now is not kept as known
    cache = HashCache()
    cache.sha256(source)
    cache.save()
    done = target.push(source)
    assert done.outcome == "changed", done.error
    assert done.bytes_sent < 200_000
    assert (target.current / "model.bin").read_bytes() == source.read_bytes()
    words = [one.text for one in target.events if isinstance(one, Warned)]
    assert [one for one in words if one.endswith("as a delta to the current release")]


def test_whole_is_whole(target: Target, tmp_path: Path) -> None:
    source = tmp_path / "model.bin"
    source.write_bytes(LARGE)
    target.push(source)
    source.write_bytes(LARGE + b"more")
    done = target.push(source, transfer=TransferOptions(whole=True, compress="never"))
    assert done.bytes_sent == len(LARGE) + 4


def test_what_shrinks_is_compressed_when_asked(target: Target, tmp_path: Path) -> None:
    source = tmp_path / "lib.so"
    source.write_bytes(b"".join(b"symbol %d\n" % n for n in range(500_000)))
    random_file = tmp_path / "weights.bin"
    random_file.write_bytes(LARGE[: 4 * MIB])
    done = target.push(source, random_file, transfer=TransferOptions(compress="always"))
    assert done.outcome == "changed", done.error
    size = source.stat().st_size
    assert 4 * MIB < done.bytes_sent < 4 * MIB + size / 2
    assert (target.current / "lib.so").read_bytes() == source.read_bytes()


def test_another_device_at_the_address_is_not_taken_for_known(
    target: Target, tmp_path: Path
) -> None:
    """What was remembered of a device holds for its identity only."""
    source = a_folder(tmp_path)
    target.push(source)
    (file,) = (tmp_path / "home" / "devices").iterdir()
    file.write_text(file.read_text().replace("SHA256:", "SHA256:other"))
    done = target.push(source)
    assert (done.outcome, done.round_trips) == ("unchanged", 2)


def test_bad_sources_are_refused(target: Target, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "passwd").symlink_to("/etc/passwd")
    folder = tmp_path / "folder"
    (folder / "real").mkdir(parents=True)
    (folder / "real" / "f").write_text("f")
    (folder / "link").symlink_to("real")
    pipe = tmp_path / "pipe"
    pipe.mkdir()
    os.mkfifo(pipe / "p")
    one, two = tmp_path / "one" / "f", tmp_path / "two" / "f"
    for path in (one, two):
        path.parent.mkdir()
        path.write_text(str(path))
    for sources, words in (
        ([tmp_path / "none"], "does not exist"),
        ([empty], "no file to send"),
        ([outside], "points outside"),
        ([folder], "link to a folder"),
        ([pipe], "is neither a file nor a folder"),
        ([one, two], "two different files"),
    ):
        with pytest.raises(InputError, match=words):
            target.push(*sources)
    with pytest.raises(InputError, match="not a valid release name"):
        target.push(one, name="../up")
