"""One writer a board: real processes, a real sshd, stopped, killed and contending."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from fleet.engine.lease import reservations
from fleet.engine.lease.claims import OwnerToken, has_ended
from fleet.engine.lease.lease import TTL_SECONDS, Lease, LeasedStall
from fleet.engine.lease.states import Standing, State
from fleet.engine.session import Session
from fleet.model.command import script
from fleet.model.deadline import Deadline
from fleet.model.errors import (
    DeviceError,
    LeaseHeldError,
    LeaseLostError,
    TransportError,
)
from fleet.model.events import Event, Warned
from fleet.model.inventory import Host
from fleet.model.lease import LeaseHolder
from fleet.ops.batches import BLOCK
from fleet.ops.frames import CHUNK, SPAN
from fleet.ops.lease import parse_lease, who_command
from tests.chaos import Chaos
from tests.transport.sshd import Sshd, running

from .conftest import Bench

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("lease_worker.py")
ADD = 'echo "$2" >> "$1"'


@dataclass
class Place:
    """A board with leases of its own, and workstations as processes."""

    server: Sshd
    folder: Path
    events: list[Event] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def host(self) -> Host:
        return self.server.host(base_dir=str(self.folder / "base"), connect_timeout=30.0)

    @contextlib.contextmanager
    def session(self) -> Iterator[Session]:
        session = Session(self.host, self.events.append)
        session.open()
        try:
            yield session
        finally:
            session.close()

    def worker(self, do: str, name: str = "w", **settings: object) -> subprocess.Popen[str]:
        host = self.host
        told = {
            "do": do, "name": name, "port": host.port, "user": host.user,
            "identity": str(host.identity_files[0]), "known_hosts": str(host.known_hosts),
            "base": host.base_dir, "log": str(self.log), **settings,
        }  # fmt: skip
        return subprocess.Popen(
            [sys.executable, str(WORKER), json.dumps(told)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env={**os.environ, "FLEET_OWNER": f"{name}@elsewhere"},
        )  # fmt: skip

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def add(self, session: Session, text: str) -> None:
        session.ask(script(ADD, str(self.log), text), "add", mutates=True)

    def holders(self) -> list[LeaseHolder]:
        with self.session() as session:
            text = session.ask(who_command(), "who").text
        return parse_lease(text, "board").held

    def file(self, name: str) -> Path:
        return self.server.leases / "fleet-lease" / name

    def expire(self, generation: int, boot: str = "") -> None:
        """As if the time of that lease had passed, or the board been booted."""
        mine = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        for name in ("keep", "step"):
            path = self.file(f"write.{generation}/{name}")
            if path.exists():
                path.write_text(f"{boot or mine} 1 0\n")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    # bash under sshd reads ~/.bashrc below SHLVL 2: 100 ms a command where pyenv stands in it.
    env = f'SetEnv="FLEET_LEASE_DIR={tmp_path}/sshd/leases" "SHLVL=2"'
    with running(tmp_path / "sshd", env) as server:
        yield Place(server, tmp_path)


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


def age(lease: Lease, seconds: float) -> None:
    """As if the last renewal was so much longer ago."""
    lease._standing = replace(lease._standing, renewed=lease._standing.renewed - seconds)


def take_over(place: Place, session: Session) -> Lease:
    """As another workstation: refused as long as the holder has time, then it goes."""
    lease = Lease(session, "taking over", ttl=60)
    lease.__enter__()
    refused = 0
    end = time.monotonic() + 60
    while True:
        assert time.monotonic() < end
        try:
            place.add(session, "taken by")
        except LeaseHeldError:
            refused += 1
            time.sleep(0.1)
        else:
            break
    assert refused, "it was held at first"
    return lease


def test_nothing_is_sent_before_the_first_write(place: Place) -> None:
    with place.session() as session, Lease(session, "look"):
        session.ask(script("true"), "read")
        assert session.traffic.round_trips == 1
    assert not place.file("").exists()


def test_take_write_give_back(place: Place) -> None:
    with place.session() as session:
        with Lease(session, "deploy app", "run-7") as lease:
            place.add(session, "one")
            place.add(session, "two")
            (holder,) = place.holders()
            assert (holder.reason, holder.run_id, holder.generation) == ("deploy app", "run-7", 1)
            held = session.lease
            assert held is lease
        assert session.lease is None
        assert session.traffic.round_trips == 4, "take, two steps, give back"
    assert place.holders() == []
    assert place.lines() == ["one", "two"]


def test_a_failing_step_is_a_failing_step(place: Place) -> None:
    with (
        place.session() as session,
        Lease(session, "x"),
        pytest.raises(DeviceError, match="status 113: mine"),
    ):
        session.ask(script("echo mine >&2; exit 113"), "step", mutates=True)


def test_another_writer_is_told_who_and_why(place: Place) -> None:
    with place.session() as first, place.session() as second, Lease(first, "deploy app", "r1"):
        place.add(first, "one")
        with (
            pytest.raises(LeaseHeldError, match=r"in use by .*deploy app") as caught,
            Lease(second, "deploy other"),
        ):
            place.add(second, "two")
        assert "fleet reserve --list board" in caught.value.hint
        assert "fleet reserve --end board --force" in caught.value.hint
        second.ask(script("true"), "reading goes on")
        place.add(first, "three")
    assert place.lines() == ["one", "three"]


def test_two_names_of_one_board_in_a_run_are_told_so(place: Place) -> None:
    """Not to wait for their own run."""
    with place.session() as one, place.session() as two, Lease(one, "deploy", "run-1") as first:
        two.host = replace(two.host, name="twin")
        first.take()
        with Lease(two, "deploy", "run-1") as second, pytest.raises(LeaseHeldError) as caught:
            second.take()
    assert f"twin and {one.host.name} are one device" in str(caught.value)
    assert "inventory" in caught.value.hint
    with place.session() as again, Lease(again, "deploy", "run-2") as third:
        third.take()


def test_a_broken_holder_stops_before_its_next_step(place: Place) -> None:
    with place.session() as session, Lease(session, "deploy app"):
        place.add(session, "one")
        (result,) = reservations.release([place.host], force=True, parallel=1)
        assert result.outcome == "changed"
        assert "deploy app" in result.text
        with pytest.raises(LeaseLostError, match=r"taken by .*reserve --end --force"):
            place.add(session, "two")
    assert place.lines() == ["one"]


def test_a_reservation_and_its_owner(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_OWNER", "ann@desk")
    (locked,) = reservations.reserve([place.host], 7200, "camera", parallel=1)
    assert locked.outcome == "changed", locked.error
    with place.session() as session, Lease(session, "x"):
        place.add(session, "ann writes")
    monkeypatch.setenv("FLEET_OWNER", "bob@desk")
    with (
        place.session() as session,
        Lease(session, "x"),
        pytest.raises(LeaseHeldError, match=r"reserved by ann@desk.* camera"),
    ):
        place.add(session, "bob writes")
    for act in (
        reservations.reserve([place.host], 60, "me too", parallel=1),
        reservations.release([place.host], force=False, parallel=1),
    ):
        assert isinstance(act[0].error, LeaseHeldError)
    (seen,) = reservations.who([place.host], parallel=1)
    assert seen.text.startswith("reserved by ann@desk, taken ")
    assert seen.round_trips == 1
    (broken,) = reservations.release([place.host], force=True, parallel=1)
    assert broken.outcome == "changed"
    (free,) = reservations.who([place.host], parallel=1)
    assert free.text == "free"
    assert place.lines() == ["ann writes"]


def test_a_new_connection_keeps_the_lease(place: Place) -> None:
    with place.session() as session, Lease(session, "x") as lease:
        place.add(session, "one")
        session.reopen()
        place.add(session, "two")
        assert lease.ticket is not None
        assert lease.ticket.generation == 1
    assert place.lines() == ["one", "two"]


def test_a_lost_answer_takes_no_second_lease(place: Place) -> None:
    with place.session() as session, Lease(session, "x") as lease:
        lease.guarded(script("true"))
        first, lease._standing = lease.ticket, Standing(State.ASKED)
        lease.take()
        assert lease.ticket == first


def test_a_lost_answer_to_take_locks_nobody_out(place: Place) -> None:
    """The link is cut at each of many bytes of the answer; the next session goes on at once."""

    @contextlib.contextmanager
    def behind(cable: Chaos) -> Iterator[Session]:
        session = Session(cable.through(place.host, place.folder), place.events.append)
        session.open()
        try:
            yield session
        finally:
            session.close()

    def taken(session: Session) -> int:
        with Lease(session, "push") as lease:
            lease.take()
            assert lease.ticket is not None
            return lease.ticket.generation

    with Chaos(place.server.port) as cable, behind(cable) as session:
        before = cable.received
        taken(session)
        answer = cable.received - before
    held = 0
    for at in range(1, answer, max(1, answer // 12)):
        with Chaos(place.server.port) as cable, behind(cable) as session:
            cable.cut_back_after(at)
            with contextlib.suppress(TransportError):
                taken(session)
        held += bool(place.holders())
        with place.session() as session:
            taken(session)
    assert held, "no cut came after the board had made the lease"
    assert not any("waits up to" in one.text for one in place.events if isinstance(one, Warned))


def test_a_lost_answer_to_the_last_step_locks_nobody_out(place: Place) -> None:
    """The link is cut at each of many bytes of the answer; then the step is done once more."""
    step = script(ADD, str(place.log), "x")

    def given_back(session: Session, cut: int | None, cable: Chaos) -> int:
        session.reopen()
        with Lease(session, "push") as lease:
            lease.take()
            before = cable.received
            if cut is not None:
                cable.cut_back_after(cut)
            deadline = Deadline(60)
            while True:  # once more also where the step of before ends only now
                try:
                    session.run(step, "add", mutates=True, ends=True)
                    break
                except TransportError:
                    if deadline.expired:
                        raise
                    session.reopen()
            answer = cable.received - before
            cable.cut_back_after(1 << 40)
            assert lease.ticket is None
            assert not place.holders()
        return answer

    with Chaos(place.server.port) as cable:
        session = Session(cable.through(place.host, place.folder), place.events.append)
        session.open()
        with Lease(session, "push"):
            session.run(step, "add", mutates=True, ends=True)
            place.add(session, "y")  # what comes behind it takes the lease again
        answer = given_back(session, None, cable)
        cuts = range(1, answer, max(1, answer // 9))
        for at in cuts:
            given_back(session, at, cable)
        session.close()
    assert place.lines().count("x") > len(cuts) + 2, "no cut came behind the step"


@pytest.mark.parametrize("why", ["spent", "failed", "held"])
def test_a_take_that_was_refused_leaves_no_claim(
    place: Place, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(place.folder))
    folder = place.server.leases / "fleet-lease"
    with place.session() as session, contextlib.ExitStack() as held:
        if why == "spent":
            (folder / "write.999999998").mkdir(parents=True)
        elif why == "failed":
            folder.write_text("")
        else:
            other = held.enter_context(Lease(session, "x"))
            other.take()
            before = [one.name for one in place.folder.glob("fleet-leases-*/*")]
        with pytest.raises(DeviceError), Lease(session, "y") as lease:
            lease.take()
        left = {one.name for one in place.folder.glob("fleet-leases-*/*")}
        assert left == (set(before) if why == "held" else set())


@pytest.mark.slow
def test_long_steps_are_held_by_renewal(place: Place) -> None:
    """A stream of unknown length: only the renewing thread keeps it, over many ttls."""
    with place.session() as session, place.session() as other, Lease(session, "x", ttl=3) as lease:

        def slow() -> Iterator[bytes]:
            end = time.monotonic() + 9
            while time.monotonic() < end:
                time.sleep(0.1)
                yield b"x"
            with pytest.raises(LeaseHeldError), Lease(other, "y"):
                place.add(other, "never")

        session.run(
            script("cat > /dev/null"), "send",
            stdin=slow(), mutates=True, deadline=LeasedStall(30, lease),
        )  # fmt: skip
        place.add(session, "after")
    assert place.lines() == ["after"]


def test_over_a_reboot_of_ones_own(place: Place) -> None:
    with place.session() as session, Lease(session, "x") as lease:
        place.add(session, "one")
        with session.over_reboot():
            place.expire(1, boot="the-boot-before")
            assert place.holders() == []
            age(lease, 2 * TTL_SECONDS)  # it takes so long
            assert lease.late
            session.reopen()
        place.add(session, "two")
        assert lease.ticket is not None
        assert lease.ticket.generation == 1
    assert place.lines() == ["one", "two"]


def test_a_board_taken_during_the_reboot_is_lost(place: Place) -> None:
    with place.session() as session, place.session() as other, Lease(session, "x"):
        place.add(session, "one")
        reboot = session.over_reboot()
        reboot.__enter__()
        place.expire(1, boot="the-boot-before")
        with Lease(other, "y"):
            place.add(other, "other")
        with pytest.raises(LeaseLostError, match="taken by"):
            reboot.__exit__(None, None, None)
        with pytest.raises(LeaseLostError):
            place.add(session, "two")
    assert place.lines() == ["one", "other"]


def test_a_killed_process_gives_its_board_to_the_next(place: Place) -> None:
    worker = place.worker("two_steps", ttl=600)
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        with place.session() as session:
            with pytest.raises(LeaseHeldError, match="w@elsewhere"), Lease(session, "x"):
                place.add(session, "too early")
            worker.kill()
            worker.wait()
            with Lease(session, "x"):
                place.add(session, "next")
    finally:
        end(worker)
    assert any("fleet released it" in one.text for one in place.events if isinstance(one, Warned))
    assert place.lines() == ["one", "next"]


def test_the_step_of_an_ended_process_is_waited_for_and_that_is_said(place: Place) -> None:
    """The step ends when the waiting was said, and only then."""
    flag = place.folder / "flag"
    flag.touch()
    said: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, Warned):
            said.append(event.text)
            flag.unlink(missing_ok=True)

    step = script('while [ -e "$1" ]; do sleep 0.05; done', str(flag))
    with place.session() as first, Lease(first, "push a") as ended:
        run = threading.Thread(target=first.run, args=(step, "send"), kwargs={"mutates": True})
        run.start()
        until(lambda: any(one.busy for one in place.holders()))
        assert ended._claim is not None
        ended._claim.close(given_back=False)  # as the kernel does it for a process that ends
        second = Session(place.host, hear)
        second.open()
        with Lease(second, "push b"):
            place.add(second, "next")
        second.close()
        run.join(60)
    assert place.lines() == ["next"]
    assert re.search(r"in use by .*push a; .*so fleet waits up to \d+ s", said[0])


def test_elsewhere_a_killed_process_is_not_judged(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    claim = OwnerToken()
    assert not has_ended(claim.token), "it lives"
    claim.close(given_back=False)
    assert has_ended(claim.token)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert not has_ended(claim.token), "another TMPDIR knows nothing of it"
    monkeypatch.undo()
    assert has_ended(claim.token)
    assert not has_ended("../../etc/passwd")


def test_stopped_between_two_steps(place: Place) -> None:
    worker = place.worker("two_steps", ttl=2)
    try:
        assert worker.stdout is not None
        assert worker.stdin is not None
        assert worker.stdout.readline() == "ready\n"
        worker.send_signal(signal.SIGSTOP)
        with place.session() as session:
            lease = take_over(place, session)
            worker.stdin.write("\n")
            worker.stdin.flush()
            worker.send_signal(signal.SIGCONT)
            kind, sent, *why = worker.stdout.readline().split()
            assert (kind, sent) == ("lost", "0"), "nothing was sent, not even a question"
            assert "could not renew the lease within 2 s" in " ".join(why)
            place.add(session, "still mine")
            lease.__exit__(None, None, None)
    finally:
        end(worker)
    assert place.lines() == ["one", "taken by", "still mine"]


@pytest.mark.parametrize(("carrier", "chunk"), [("paramiko", CHUNK), ("ssh", SPAN)])
def test_stopped_in_the_middle_of_an_upload(place: Place, carrier: str, chunk: int) -> None:
    large = place.folder / "large"
    with large.open("wb") as stream:
        stream.truncate(400 << 20)
    store = place.folder / "base" / "store"
    cable = Chaos(place.server.port, [1 << 40])
    pins = place.folder / "pins"
    pins.write_text(
        place.server.known_hosts.read_text().replace(f":{place.server.port}", f":{cable.port}")
    )
    told: dict[str, Any] = {"ttl": 2, "file": str(large), "known_hosts": str(pins)}
    worker = place.worker("upload", port=cable.port, carrier=carrier, **told)

    def arrived() -> int:
        return sum(path.stat().st_size for path in store.glob("*.part"))

    with cable, worker_ended(worker):
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        until(lambda: arrived() > 1 << 20)
        worker.send_signal(signal.SIGSTOP)
        with place.session() as session:
            lease = take_over(place, session)
            until(lambda: not cable.pending and settled(lambda: cable.sent))
            sent, there = cable.sent, arrived()
            assert there < large.stat().st_size
            worker.send_signal(signal.SIGCONT)
            kind, *rest = worker.stdout.readline().split()
            assert kind == "lost", rest
            worker.wait(30)
            # Of the chunk that was being written when the stop came, the rest may still go.
            assert cable.sent - sent < chunk + 4096, "more than the chunk that was under way"
            # What dd on the board had in its hands before the stop it may still put down.
            assert arrived() - there <= BLOCK
            place.add(session, "still mine")
            lease.__exit__(None, None, None)
    assert not [path for path in store.iterdir() if path.suffix != ".part"]


def settled(count: Callable[[], int]) -> bool:
    """True when the count stays as it is for a while."""
    before = count()
    time.sleep(0.3)
    return count() == before


@contextlib.contextmanager
def worker_ended(worker: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        end(worker)


def end(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    worker.send_signal(signal.SIGCONT)
    worker.communicate()


def contend(place: Place, rounds: int, ttl: int, stops: int) -> tuple[int, int, int]:
    """Ten processes; some are stopped for longer than their lease. (rounds, lost, held)"""
    workers = [place.worker("contend", f"w{n}", rounds=rounds, ttl=ttl) for n in range(10)]
    over = threading.Event()

    def stop_some() -> None:
        dice = random.Random(1)
        for _ in range(stops):
            until(lambda: over.is_set() or len(place.lines()) > 8)
            victim = dice.choice([one for one in workers if one.poll() is None] or workers)
            victim.send_signal(signal.SIGSTOP)
            over.wait(ttl + 2)
            victim.send_signal(signal.SIGCONT)
            over.wait(dice.uniform(0, 0.3))

    thread = threading.Thread(target=stop_some)
    thread.start()
    try:
        said = [worker.communicate(timeout=1500)[0].split() for worker in workers]
    finally:
        over.set()
        thread.join()
        for worker in workers:
            end(worker) if worker.poll() is None else None
    assert all(one and one[0] == "done" for one in said), said
    done, lost, held = (sum(int(one[n]) for one in said) for n in (1, 2, 3))
    return done, lost, held


def check_log(lines: list[str], rounds: int) -> None:
    """No action in another; no holder after a later one has begun; every round is whole."""
    highest, whole, number = 0, 0, 0
    while number < len(lines):
        begin, generation, name = lines[number].split()
        assert begin == "begin", lines[number - 2 : number + 3]
        assert lines[number + 1] == f"end {generation} {name} ", lines[number : number + 3]
        assert int(generation) >= highest, lines[number - 2 : number + 3]
        highest = int(generation)
        whole += name.endswith("-1")
        number += 2
    assert whole == rounds


def test_ten_processes_and_one_board(place: Place) -> None:
    done, _lost, held = contend(place, rounds=10, ttl=20, stops=0)
    assert done == 100
    check_log(place.lines(), 100)
    assert held, "they met"


@pytest.mark.slow
def test_ten_processes_a_thousand_rounds(place: Place) -> None:
    done, lost, held = contend(place, rounds=100, ttl=2, stops=20)
    assert done == 1000
    check_log(place.lines(), 1000)
    assert held
    assert lost, "a stopped holder lost"


def test_the_check_of_the_log_can_fail() -> None:
    good = ["begin 1 a-0 ", "end 1 a-0 ", "begin 1 a-1 ", "end 1 a-1 "]
    check_log(good, 1)
    mixed = [good[0], "begin 2 b-0 ", good[1], "end 2 b-0 "]
    late = ["begin 2 b-0 ", "end 2 b-0 ", *good]
    for bad in (mixed, late, good[:3] + good[:1]):
        with pytest.raises((AssertionError, IndexError)):
            check_log(bad, 1)


@pytest.mark.qairt
def test_a_deploy_under_a_foreign_reservation(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_OWNER", "ann@desk")
    (locked,) = reservations.reserve([bench.host], 600, "camera", parallel=1)
    assert locked.error is None
    monkeypatch.setenv("FLEET_OWNER", "bob@desk")
    try:
        (refused,) = bench.operation(run="never").deploy()
        assert isinstance(refused.error, LeaseHeldError)
        assert "reserved by ann@desk" in refused.error.message
        assert bench.tree() == {}
        (planned,) = bench.operation().plan()
        assert planned.outcome == "planned"
        assert planned.plan is not None
        assert any("reserved by ann@desk" in note for note in planned.plan.notes)
    finally:
        reservations.release([bench.host], force=True, parallel=1)
    (done,) = bench.operation(run="never").deploy()
    assert done.outcome == "changed", done.error
    (again,) = bench.operation().deploy()
    assert (again.outcome, again.round_trips) == ("unchanged", 2)


def test_deadline_of_a_lost_lease_is_over(place: Place) -> None:
    with place.session() as session, Lease(session, "x", ttl=60) as lease:
        place.add(session, "one")
        stall = LeasedStall(1000, lease)
        early = stall.expired
        assert not early
        assert list(lease.feed([b"chunk"])) == [b"chunk"]
        age(lease, 60)
        assert stall.expired
        assert not Deadline(1000).expired
        with pytest.raises(LeaseLostError):
            list(lease.feed([b"chunk"]))
        with pytest.raises(LeaseLostError, match="could not renew the lease within 60 s"):
            place.add(session, "two")
