"""A push over adb that is cut anywhere: after it the blob is right or absent, never a third."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.engine.lease.lease import Lease
from fleet.engine.session import Session
from fleet.engine.states import facts_of
from fleet.engine.transfer import upload as uploading
from fleet.engine.transfer.context import TransferContext, TransferOptions
from fleet.engine.transfer.upload import Upload
from fleet.facts.gather import gather
from fleet.lab import LabPhones
from fleet.model.deadline import Deadline
from fleet.model.errors import ConnectionLostError, TransportError, UnreachableError
from fleet.model.events import Event, Warned
from fleet.model.files import file_ref
from fleet.model.manifest import Manifest
from fleet.model.plan import Blob
from fleet.runtimes.store import RuntimeStore
from tests.chaos import Chaos, Fault

from .conftest import Desk, Make

CHUNK = 1 << 20  # adb's largest packet: what was under way in one is lost with it
TALK = 1 << 17  # what the looks before and after cost on the wire
SIZE = 3_000_000
STORE = "/data/local/tmp/fleet/store"


@pytest.fixture
def phone(desk: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(uploading, "WAIT_SECONDS", 0.02)
    return desk(RuntimeStore(tmp_path / "store"), LabPhones(1, "sm8650", "phone"))


def cut_once(phone: Desk, folder: Path, rng: random.Random) -> tuple[int, int]:
    """One push with cuts at random bytes; (bytes on the wire, cuts)."""
    source = folder / "blob"
    source.write_bytes(rng.randbytes(SIZE))
    item = file_ref(source, "data/blob")
    manifest = Manifest("cut", (item,))
    cuts: list[int | None] = [rng.randrange(1, SIZE + 5000) for _ in range(rng.randrange(1, 3))]
    seen: list[Event] = []
    with Chaos(phone.lab.phones[0].port, cuts) as cable:
        host = replace(phone.hosts[0], serial=f"127.0.0.1:{cable.port}", connect_timeout=20.0)
        session = Session(host, seen.append)
        try:
            session.open()
            facts = gather(session.transport, host, Deadline(20))
            Upload(session, facts, manifest).send([Blob(item)])
        except uploading._BROKEN:
            pass  # more cuts than tries, or one while it was being opened: absent is right too
        finally:
            session.close()
        wire, made = cable.sent, cable.cuts
    names = phone.shell("phone001", f"ls {STORE} 2>/dev/null || true").split()
    if item.sha256 in names:
        held = phone.shell("phone001", f"sha256sum {STORE}/{item.sha256}").split()[0]
        assert held == item.sha256 == hashlib.sha256(source.read_bytes()).hexdigest()
        assert names == [item.sha256], "nothing else is left"
    else:
        assert set(names) <= {f"{item.sha256}.part"}
    phone.shell("phone001", f"rm -rf {STORE}")
    return wire, made


@pytest.mark.parametrize(
    "count", [15, pytest.param(500, marks=pytest.mark.slow)], ids=["fast", "500"]
)
def test_never_a_third_state_and_never_much_twice(phone: Desk, tmp_path: Path, count: int) -> None:
    rng = random.Random(count)
    total = 0
    for _ in range(count):
        wire, made = cut_once(phone, tmp_path, rng)
        assert wire <= SIZE + TALK + made * (CHUNK + TALK)
        total += made
    assert total >= count * 0.8, "the cuts did not happen"


def test_after_an_unplug_the_next_push_goes_on(
    phone: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """adbd ends the shell of a command whose link is gone; the lease must not stay busy for it."""
    monkeypatch.setattr(uploading, "TRIES", 1)
    source = tmp_path / "blob"
    source.write_bytes(random.Random(1).randbytes(SIZE))
    item = file_ref(source, "data/blob")
    seen: list[Event] = []
    with Chaos(phone.lab.phones[0].port, [SIZE // 2]) as cable:
        host = replace(phone.hosts[0], serial=f"127.0.0.1:{cable.port}", connect_timeout=20.0)
        session = Session(host, seen.append)
        session.open()
        facts = gather(session.transport, host, Deadline(20))
        with pytest.raises(ConnectionLostError), Lease(session, "push"):
            Upload(session, facts, Manifest("cut", (item,))).send([Blob(item)])
        session.close()
        after = Session(host, seen.append)
        after.open()
        with Lease(after, "push") as lease:
            lease.take()
            assert lease.ticket is not None
            assert lease.ticket.generation == 2
        after.close()
    assert any("fleet released it" in one.text for one in seen if isinstance(one, Warned))


AHEAD = 96 << 20  # larger than what an adb server takes while the link is at its beginning
RATE = 10e6
CUT = 20_000_000


def slow_push(phone: Desk, folder: Path, then: Fault) -> tuple[Session, Chaos, Exception | None]:
    """A push over a slow cable that is cut; `then` is what becomes of the next connection."""
    source = folder / "blob"
    source.write_bytes(bytes(range(256)) * (AHEAD // 256))
    item = file_ref(source, "data/blob")
    transfer = TransferContext(TransferOptions(compress="never"))
    with Chaos(phone.lab.phones[0].port, [Fault(cut=CUT, rate=RATE)], then=then) as cable:
        host = replace(phone.hosts[0], serial=f"127.0.0.1:{cable.port}", connect_timeout=20.0)
        session, failure = Session(host, lambda _: None, transfer=transfer), None
        session.open()
        facts = gather(session.transport, host, Deadline(20))
        try:
            Upload(session, facts, Manifest("cut", (item,))).send([Blob(item)])
        except TransportError as error:
            failure = error
        finally:
            session.close()
    return session, cable, failure


def test_what_is_said_to_be_sent_is_what_the_link_took(phone: Desk, tmp_path: Path) -> None:
    """The adb server takes tens of megabytes more; after a cut they are sent again."""
    session, cable, failure = slow_push(phone, tmp_path, Fault())
    assert failure is None
    assert cable.cuts == 1
    assert AHEAD <= session.payload_bytes <= cable.sent
    assert cable.sent - session.payload_bytes < CHUNK + TALK + (1 << 20)


def test_what_is_said_to_be_sent_to_a_phone_that_went_for_good(
    phone: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The phone has said how far it came: eight times a file."""
    monkeypatch.setattr(uploading, "TRIES", 2)
    session, cable, failure = slow_push(phone, tmp_path, Fault(refuse=True))
    assert isinstance(failure, UnreachableError)
    assert "disconnected" in failure.message
    assert "tcpip" not in failure.hint
    assert "adb devices" in failure.hint
    assert session.payload_bytes <= cable.sent
    assert cable.sent - session.payload_bytes < AHEAD // 8 + (4 << 20)


@pytest.mark.parametrize("at", [1, 200])
def test_a_link_that_breaks_before_the_first_byte_is_connected_again(phone: Desk, at: int) -> None:
    """As adbd that ends while fleet asks what the phone is."""
    with Chaos(phone.lab.phones[0].port, [Fault(), Fault()]) as cable:
        host = replace(phone.hosts[0], serial=f"127.0.0.1:{cable.port}", connect_timeout=20.0)
        session = Session(host, phone.events.append)
        try:
            session.open()
            cable.cut_back_after(at)
            facts = facts_of(session)
        finally:
            session.close()
    assert cable.cuts == 1
    assert facts.base_dir
    assert [event.text for event in phone.events if isinstance(event, Warned)]
