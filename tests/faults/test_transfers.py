"""Uploads over a real sshd behind a link that breaks: old or new, and little is sent twice."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleet.engine.session import Session
from fleet.engine.states import ask_state
from fleet.engine.transfer import upload as uploading
from fleet.engine.transfer.context import TransferContext, TransferOptions
from fleet.engine.transfer.upload import Upload
from fleet.facts.gather import gather
from fleet.model.deadline import Deadline
from fleet.model.errors import FleetError, HostKeyError, TransferError
from fleet.model.facts import Facts
from fleet.model.files import file_ref
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest
from fleet.model.plan import Blob, SendBlobs, StageRelease
from fleet.ops.backend import ReleaseBackend, backend_for
from fleet.ops.release import actions_for
from tests.chaos import Chaos, Fault
from tests.transport.sshd import Sshd, running

from .app import app_of, deploy, small

# What a cut may cost again: the window of an SSH channel (2 MiB in OpenSSH), one block of dd
# on the device, and what sshd and the pipe have in their hands.
CHUNK = (2 << 20) + (1 << 20) + (1 << 18)
TALK = 1 << 16  # handshake, looks and scripts of one connection


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploading, "WAIT_SECONDS", 0.0)


def one_way() -> TransferContext:
    """All on the connection that is there: a script of faults counts connections."""
    return TransferContext(TransferOptions(carrier="paramiko", compress="never"))


def facts_of(host: Host) -> Facts:
    session = Session(host, lambda _: None)
    session.open()
    try:
        return gather(session.transport, host, Deadline(60))
    finally:
        session.close()


def upload(host: Host, facts: Facts, app: Manifest, blobs: list[Blob] | None = None) -> Session:
    session = Session(host, lambda _: None, transfer=one_way())
    session.open()
    try:
        Upload(session, facts, app).send(blobs or [Blob(file) for file in app.blobs.values()])
    finally:
        session.close()
    return session


def one_file(folder: Path, data: bytes) -> Manifest:
    folder.mkdir(exist_ok=True)
    source = folder / "source"
    source.write_bytes(data)
    return Manifest("app", (file_ref(source, "lib/one"),))


def names(base: Path) -> set[str]:
    return {path.name for path in (base / "store").glob("*")}


@pytest.mark.parametrize(
    "stride", [97, pytest.param(1, marks=pytest.mark.slow)], ids=["fast", "every"]
)
def test_a_cut_at_every_byte_of_a_small_file(
    host: Host, base: Path, tmp_path: Path, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte of the stream that carries the file, over real ssh; of the program before it
    some, because a part of a program does nothing (tests/ops/test_codings.py).
    """
    monkeypatch.setattr(uploading, "TRIES", 1)
    app = one_file(tmp_path, os.urandom(300))
    (item,) = app.files
    facts = facts_of(host)
    with Chaos(int(host.port or 0)) as link:
        session = Session(link.through(host, tmp_path), lambda _: None)
        session.open()
        begin = link.sent
        Upload(session, facts, app).send([Blob(item)])
        session.close()
        end = link.sent
    assert end - begin > item.size
    outcomes = set()
    program = min(len(backend_for(facts).worker or b""), end - begin - 1500)
    for at in (*range(begin, begin + program, 997), *range(begin + program, end, stride)):
        shutil.rmtree(base, ignore_errors=True)
        with (
            Chaos(int(host.port or 0), [at]) as link,
            contextlib.suppress(FleetError),
        ):
            upload(link.through(host, tmp_path), facts, app)
        found = names(base) if base.exists() else set()
        assert found <= {item.sha256, f"{item.sha256}.part"}
        if item.sha256 in found:
            assert (base / "store" / item.sha256).read_bytes() == item.source.read_bytes()
        outcomes.add(item.sha256 in found)
    assert False in outcomes, "no cut came in time"
    shutil.rmtree(base, ignore_errors=True)
    upload(host, facts, app)
    assert names(base) == {item.sha256}


@pytest.mark.parametrize(
    "rounds", [1, pytest.param(25, marks=pytest.mark.slow)], ids=["20 cuts", "500 cuts"]
)
def test_twenty_cuts_cost_at_most_a_chunk_each(
    host: Host, base: Path, tmp_path: Path, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 MiB; the bytes are counted on the wire, the result by its hash."""
    monkeypatch.setattr(uploading, "TRIES", 25)
    size, cuts = 64 << 20, 20
    facts = facts_of(host)

    parts: list[Path] = []

    def wait(_: float) -> None:
        """Instead of seconds: until the receiver of the connection before has ended."""
        settle(parts[-1], 0)

    monkeypatch.setattr(uploading, "time", SimpleNamespace(sleep=wait))
    for turn in range(rounds):
        dice = random.Random(turn)
        app = one_file(tmp_path, dice.randbytes(size))
        (item,) = app.files
        parts.append(base / "store" / f"{item.sha256}.part")
        how = dice.choice(["rst", "fin"])
        script = [
            Fault(cut=dice.randrange(1 << 20, 5 << 20), how=how)  # type: ignore[arg-type]
            for _ in range(cuts)
        ]
        with Chaos(int(host.port or 0), script) as link:
            upload(link.through(host, tmp_path), facts, app)
            assert link.cuts == cuts, f"turn {turn}"
            assert size <= link.sent <= size + cuts * (CHUNK + TALK), f"turn {turn}"
        blob = base / "store" / item.sha256
        with blob.open("rb") as stream:
            assert hashlib.file_digest(stream, "sha256").hexdigest() == item.sha256
        assert names(base) == {item.sha256}
        blob.unlink()


def settle(part: Path, least: int = 1) -> None:
    """Until what the device still had in its hands is put down: dd outlives the connection."""
    end, sizes = time.monotonic() + 20, [-1, -2]
    while time.monotonic() < end and (sizes[-1] != sizes[-2] or sizes[-1] < least):
        time.sleep(0.2)
        sizes.append(part.stat().st_size if part.exists() else 0)


def test_a_part_that_grew_since_it_was_looked_at_is_gone_on_with(
    host: Host, base: Path, tmp_path: Path
) -> None:
    """The dd of the connection before puts down its last block after the new look."""
    data = os.urandom(3_000_000)
    app = one_file(tmp_path / "src", data)
    (item,) = app.files
    facts = facts_of(host)
    part = base / "store" / f"{item.sha256}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(data[:1_500_000])
    upload(host, facts, app, [Blob(item, 1_000_000)])
    assert (base / "store" / item.sha256).read_bytes() == data


def flip(part: Path) -> None:
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)


def truncate(part: Path) -> None:
    os.truncate(part, part.stat().st_size // 3)


def replace_it(part: Path) -> None:
    part.unlink()
    part.write_bytes(b"another file altogether" * 1000)


def lengthen(part: Path) -> None:
    part.write_bytes(bytes(5_000_000))


def link_out(part: Path) -> None:
    victim = part.parent.parent / "victim"
    victim.write_text("precious")
    part.unlink()
    part.symlink_to(victim)


@pytest.mark.parametrize("change", [flip, truncate, replace_it, lengthen, link_out])
def test_a_part_that_was_changed_meanwhile_is_found_and_sent_again(
    host: Host, base: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """What is wrong never gets the name; it is gone after the first try, right after the next."""
    app = one_file(tmp_path / "src", os.urandom(12_000_000))
    (item,) = app.files
    facts = facts_of(host)
    with (
        pytest.MonkeyPatch.context() as patch,
        Chaos(int(host.port or 0), [Fault(cut=9_000_000, how="fin")]) as link,
        contextlib.suppress(FleetError),
    ):
        patch.setattr(uploading, "TRIES", 1)
        upload(link.through(host, tmp_path), facts, app)
    part = base / "store" / f"{item.sha256}.part"
    settle(part)
    assert 0 < part.stat().st_size < item.size
    change(part)
    with contextlib.suppress(TransferError):
        go_on(host, facts, app)
    blob = base / "store" / item.sha256
    assert not blob.exists() or blob.read_bytes() == item.source.read_bytes()
    go_on(host, facts, app)
    assert blob.read_bytes() == item.source.read_bytes()
    assert names(base) == {item.sha256}
    assert [path.read_text() for path in base.glob("victim")] in [[], ["precious"]]


def go_on(host: Host, facts: Facts, app: Manifest) -> None:
    """What the next deploy sends: the rest of what is there, or nothing."""
    session = Session(host, lambda _: None, transfer=one_way())
    session.open()
    try:
        state = ask_state(session, facts, app)
        for action in actions_for(app, state, 2):
            if isinstance(action, SendBlobs):
                Upload(session, facts, app).send(action.blobs)
    finally:
        session.close()


def test_a_source_that_changes_while_it_is_sent_is_noticed(
    host: Host, base: Path, tmp_path: Path
) -> None:
    """Shorter: at once. Other bytes of the same length: by the hash on the device."""
    for change in ("shorter", "other bytes"):
        app = app_of(tmp_path / change, {"lib/one": os.urandom(4_000_000)})
        source = app.files[0].source
        if change == "shorter":
            os.truncate(source, 3_000_000)
        else:
            with source.open("r+b") as stream:
                stream.seek(3_500_000)
                stream.write(b"changed")
        with pytest.raises(FleetError) as caught:
            deploy(host, app)
        assert "chang" in f"{caught.value.message} {caught.value.hint}"
        assert app.files[0].sha256 not in names(base)


ODD = (
    *("a b", "it's", 'say "hi"', "$(touch PWNED)", "`id`", "a;b", "-rf", "--", "a\\b", "*"),
    *("ü-字-🙂", "x" * 255, "a&b|c", "%s%n", "~", "!x", "#", " lead", "trail ", "new..name"),
)


@pytest.mark.parametrize("tar", [True, False], ids=["tar", "no tar"])
def test_files_with_any_name_arrive(host: Host, base: Path, tmp_path: Path, tar: bool) -> None:
    from msgspec.structs import replace as other

    contents = {f"data/{name}": name.encode() for name in ODD} | {"data/empty": b""}
    app = app_of(tmp_path / "src", contents)
    if tar:
        deploy(host, app)
    else:
        facts = facts_of(host)
        plain = other(facts, tools=other(facts.tools, tar=False))
        session = upload(host, plain, app)
        session = Session(host, lambda _: None)
        session.open()
        order = ReleaseBackend(plain).turns([StageRelease(app)], "r1")[0].order
        assert order is not None
        session.ask(order.command, "stage", stdin=order.stdin)
        state = ask_state(session, plain, app)
        assert not state.unlinked
        session.close()
    release = base / "releases" / "app" / app.id
    assert {path.name for path in (release / "data").iterdir()} == {*ODD, "empty"}
    for name in ODD:
        assert (release / "data" / name).read_text() == name
    assert (release / "data" / "empty").read_bytes() == b""
    assert not [path for path in tmp_path.rglob("PWNED") if path.name == "PWNED"]


@pytest.mark.slow
def test_more_than_four_gigabytes_arrive_over_ssh(host: Host, base: Path, tmp_path: Path) -> None:
    source = tmp_path / "sparse"
    with source.open("wb") as stream:
        stream.truncate((4 << 30) + 12345)
        stream.seek((4 << 30) + 100)
        stream.write(b"the end")
    app = Manifest("app", (file_ref(source, "data/large.bin"),))
    upload(host, facts_of(host), app)
    assert (base / "store" / app.files[0].sha256).stat().st_size == (4 << 30) + 12345


def test_another_board_at_the_same_address_gets_nothing(
    host: Host, server: Sshd, base: Path, tmp_path: Path
) -> None:
    """The addresses of two boards are exchanged in the middle of a push."""
    app = small(tmp_path / "src", "n")
    with (
        running(tmp_path / "other") as other,
        Chaos(server.port, [Fault(cut=300_000)]) as link,
    ):
        other_base = tmp_path / "base"

        def swap(event: object) -> None:
            if link.cuts and link._target == server.port:
                before.update(names(other_base) if other_base.exists() else ())
                link.plug_into(other.port)

        before: set[str] = set()
        with pytest.raises(HostKeyError, match="CHANGED"):
            deploy(link.through(host, tmp_path), app, swap)
    assert names(base) == before, "the other board wrote after the exchange"
    assert not (base / "current").exists()
