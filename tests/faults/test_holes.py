"""A link that swallows all bytes and never closes: noticed before the lease ends, and mended.

With the constants that ship, on a clock of its own.
"""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from fleet.engine.lease import lease as leasing
from fleet.engine.lease import states
from fleet.engine.pool import DeviceResult, PoolOptions, on_every_device
from fleet.engine.rollout.judge import Tally
from fleet.engine.session import Session
from fleet.engine.transfer import upload as uploading
from fleet.engine.transfer.context import TransferContext, TransferOptions
from fleet.model.command import script
from fleet.model.errors import ConnectionLostError, LeaseLostError, TransportError
from fleet.model.events import Event, Warned
from fleet.model.inventory import DEFAULT_CONNECT_SECONDS, Host
from fleet.model.manifest import Manifest
from tests.chaos import Chaos, Fault
from tests.transport.sshd import Sshd, running

from .app import app_of, deploy_in, live
from .test_interrupted import SENT_AGAIN, TALK
from .watch import Watch

HOLE = 2_000_000
SIZE = 5_000_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    """With leases of its own: what a dead link leaves holds for a minute."""
    with running(tmp_path / "sshd") as made:
        yield made


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    made = Watch()
    made.plug_in(monkeypatch)
    return made


def random_app(folder: Path, size: int = SIZE) -> Manifest:
    return app_of(folder, {"lib/large.so": bytes(range(256)) * (size // 256)})


def deployed(
    host: Host, app: Manifest, watch: Watch, runs: Callable[[], bool], events: list[Event]
) -> DeviceResult[Any]:
    """A deploy on a watch that goes while `runs`; connecting takes what it may take at most."""
    sessions: list[Session] = []

    def at_it() -> set[threading.Thread]:
        lease = sessions[0].lease if sessions else None
        assert lease is None or isinstance(lease, leasing.Lease)
        renewing = {lease._thread} if lease is not None and lease._thread.is_alive() else set()
        return {*renewing, worker[0]}

    worker: list[threading.Thread] = []

    def work(session: Session, result: DeviceResult[Any]) -> None:
        worker.append(threading.current_thread())
        sessions.append(session)
        session.host = replace(host, connect_timeout=0.5)  # of real time, for what never answers
        watch.start(runs, at_it)
        deploy_in(session, app)
        result.outcome = "changed"

    transfer = TransferContext(TransferOptions(carrier="paramiko", compress="never"))
    (result,) = on_every_device([host], work, events.append, PoolOptions(transfer=transfer))
    return result


@pytest.fixture
def slow_to_connect(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is not made takes the time that ships, on the watch."""
    made = Session.open

    def opened(session: Session) -> None:
        try:
            made(session)
        except TransportError:
            watch.sleep(DEFAULT_CONNECT_SECONDS)
            raise

    monkeypatch.setattr(Session, "open", opened)


def test_the_stall_limit_leaves_time_for_a_new_connection() -> None:
    """In the worst case a renewal was due when the link died."""
    assert leasing.STALL_SECONDS < leasing.TTL_SECONDS / 2
    oldest = leasing.RENEW_SECONDS + leasing.STALL_SECONDS
    tried = oldest + uploading.WAIT_SECONDS + DEFAULT_CONNECT_SECONDS
    assert tried < leasing.TTL_SECONDS


@pytest.mark.parametrize("ttl", [leasing.TTL_SECONDS, 6])
@pytest.mark.parametrize("share", [1.0, 0.75])
def test_the_constants_are_the_ones_that_count(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, share: float, ttl: int
) -> None:
    """Both are scaled where a lease is a shorter one."""
    waits: list[float] = []

    class Wake(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            lease._change(states.closed)
            return True

    for name in ("STALL_SECONDS", "RENEW_SECONDS"):
        monkeypatch.setattr(leasing, name, getattr(leasing, name) * share)
    lease = leasing.Lease(Session(Host("b"), lambda _: None), "x", ttl=ttl)
    lease._wake = Wake()
    scale = ttl / leasing.TTL_SECONDS
    stall = leasing.STALL_SECONDS * scale
    assert lease.patience(watch.now - stall) == 0.0
    assert lease.patience(watch.now - stall * 0.9) == pytest.approx(stall * 0.1)
    lease._keep()
    assert waits == [pytest.approx(leasing.RENEW_SECONDS * scale)]


@pytest.mark.parametrize("size", [SIZE, 1_000_000_000], ids=["5 MB", "1 GB"])
def test_a_black_hole_is_unreachable_after_a_new_connection_was_tried(
    server: Sshd,
    tmp_path: Path,
    watch: Watch,
    slow_to_connect: None,
    size: int,
) -> None:
    """A large file would be waited for longer than a lease holds: the device may hash it."""
    app = random_app(tmp_path / "src")
    if size > SIZE:
        app = structs.replace(app, files=tuple(replace(one, size=size) for one in app.files))
        with app.files[0].source.open("r+b") as stream:
            stream.truncate(size)
    events: list[Event] = []
    with Chaos(
        server.port, [Fault(cut=HOLE, how="hole")], then=Fault(cut=0, cut_back=0, how="hole")
    ) as link:
        host = link.through(server.host(base_dir=str(tmp_path / "base")), tmp_path)
        result = deployed(host, app, watch, lambda: link.cuts > 0, events)
        assert link.connections > 1, "a new connection was tried"
    assert result.outcome == "unreachable", result.text
    assert result.error is not None
    assert result.error.exit_code == 3
    wave = Tally(1)
    wave.add(result.outcome)
    assert (wave.failed, wave.unreachable) == (0, 1)


def test_a_new_connection_goes_on_where_a_black_hole_swallowed_the_rest(
    server: Sshd, tmp_path: Path, watch: Watch
) -> None:
    base = tmp_path / "base"
    app = random_app(tmp_path / "src")
    events: list[Event] = []
    with Chaos(server.port, [Fault(cut=HOLE, how="hole")]) as link:
        host = link.through(server.host(base_dir=str(base)), tmp_path)
        result = deployed(host, app, watch, lambda: link.connections == link.cuts, events)
        assert result.outcome == "changed", result.text
        assert link.connections == 2
        assert link.tallies[1].sent < SIZE, "it was not begun anew"
    assert any("tries again" in one.text for one in events if isinstance(one, Warned))
    assert live(base, app) is app


def swallowing(link: Chaos) -> bool:
    """True while every connection that was made is a black hole."""
    return link.connections == link.cuts > 0


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_black_holes_at_random_bytes(
    server: Sshd, tmp_path: Path, watch: Watch, slow_to_connect: None, rounds: int
) -> None:
    """In either direction, mended by a new connection or not; the next deploy goes through."""
    base = tmp_path / "base"
    dice = random.Random(rounds)
    old = app_of(tmp_path / "old", {"lib/large.so": dice.randbytes(SIZE)})
    plain = server.host(base_dir=str(base))
    never = Fault(cut=0, cut_back=0, how="hole")
    assert deployed(plain, old, watch, lambda: False, []).outcome == "changed"
    for turn in range(rounds):
        new = app_of(tmp_path / f"new{turn}", {"lib/large.so": dice.randbytes(SIZE)})
        fault = dice.choice(
            (
                Fault(cut=dice.randrange(SIZE), how="hole"),
                Fault(cut_back=dice.randrange(8000), how="hole"),
            )
        )
        healed = dice.random() < 0.5
        with Chaos(server.port, [fault], then=Fault() if healed else never) as link:
            host = link.through(plain, tmp_path)
            result = deployed(host, new, watch, functools.partial(swallowing, link), [])
        assert result.outcome in ("changed", "unreachable"), (fault, result.text)
        assert healed or not link.cuts or result.outcome == "unreachable", fault
        assert live(base, old, new) is new or result.outcome == "unreachable"
        with Chaos(server.port) as mended:
            host = mended.through(plain, tmp_path)
            again = deployed(host, new, watch, lambda: False, [])
        assert again.outcome == "changed", (fault, again.text)
        assert link.sent + mended.sent <= SIZE + SENT_AGAIN + TALK, fault
        assert live(base, old, new) is new
        old = new


def test_a_black_hole_during_a_step_is_unreachable(
    server: Sshd, tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease has ended then, because of the link: that the board was taken is not said."""
    begun = tmp_path / "begun"
    probe = ("sh", "-c", 'touch "$0"; while [ -e "$0" ]; do sleep 0.1; done', str(begun))
    app = app_of(tmp_path / "src", {"lib/one": b"1"}, health=probe, timeout=90)
    events: list[Event] = []
    with Chaos(server.port) as link:
        host = link.through(server.host(base_dir=str(tmp_path / "base")), tmp_path)

        def runs() -> bool:
            if begun.exists() and not swallowed:
                link.swallow()
                swallowed.append(True)
            return bool(swallowed)

        swallowed: list[bool] = []
        result = deployed(host, app, watch, runs, events)
    begun.unlink()
    assert result.outcome == "unreachable", result.text


def test_a_lease_that_ended_with_its_link_is_a_lost_connection(
    server: Sshd, tmp_path: Path, watch: Watch
) -> None:
    """And one that ended while this workstation slept is a lost lease: nobody tried to renew it."""

    session = Session(server.host(base_dir=str(tmp_path / "base")), lambda _: None)
    session.open()
    for cause in ("sleep", "link"):
        with leasing.Lease(session, "x") as lease:
            lease.take()
            good = lease._standing.renewed
            watch.sleep(leasing.TTL_SECONDS * 0.9)
            if cause == "link":
                session.close()
                lease._wake.set()
                while not lease._standing.unheard:
                    threading.Event().wait(0.01)
            watch.now = good + leasing.TTL_SECONDS
            with pytest.raises(ConnectionLostError if cause == "link" else LeaseLostError):
                session.ask(script("true"), "step", mutates=True)
    session.close()
