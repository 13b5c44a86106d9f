"""Who gets a blob from whom: threads only, no device."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import pytest

from fleet.engine.transfer.neighbours import STRIKES, BlobHolder, Neighbours
from fleet.model.deadline import Deadline
from fleet.model.errors import CancelledError, ConnectionLostError
from fleet.transport.neighbour import Peer
from fleet.transport.sshclient import Hop

LAN = "desk"
LONG = 30.0  # a test that needs it has failed


def holder(name: str) -> BlobHolder:
    hop = Hop("127.0.0.1", 22, "ubuntu", ("id",), ("ssh-ed25519 AAAA",))
    return BlobHolder(Peer(name, (hop,), "127.0.0.1", 22, 5.0), "/base")


def nothing() -> None:
    pass


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG
    while not true():
        assert time.monotonic() < end
        time.sleep(0.002)


@dataclass
class Ground:
    """Boards that get all blobs; counts what happens at the same time."""

    near: Neighbours = field(default_factory=Neighbours)
    seeds: Counter[str] = field(default_factory=Counter)
    serving: Counter[str] = field(default_factory=Counter)
    seeding: Counter[str] = field(default_factory=Counter)
    active: int = 0
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def board(self, name: str, blobs: list[str], work: Callable[[str, bool], bool]) -> None:
        left = list(blobs)
        while left:
            with self.near.turn(LAN, holder(name), left, Deadline(LONG), nothing) as turn:
                left.remove(turn.sha)
                source = turn.source.peer.name if turn.source else ""
                self._begin(turn.sha, source, name)
                try:
                    turn.arrived = work(turn.sha, bool(source))
                finally:
                    self._end(turn.sha, source)
            if not turn.arrived:
                self.near.have(LAN, holder(name), [turn.sha])  # it came directly

    def _begin(self, sha: str, source: str, name: str) -> None:
        with self.lock:
            self.active += 1
            table, key = (self.serving, source) if source else (self.seeding, sha)
            self.seeds[sha] += not source
            table[key] += 1
            if table[key] > 1 or source == name:
                self.wrong.append(f"{key} is busy, {name} was sent there")

    def _end(self, sha: str, source: str) -> None:
        with self.lock:
            self.active -= 1
            table, key = (self.serving, source) if source else (self.seeding, sha)
            table[key] -= 1


def run(
    ground: Ground, jobs: Mapping[str, Callable[[], None]], threads: int
) -> dict[str, Future[None]]:
    with ThreadPoolExecutor(threads) as pool:
        futures = {name: pool.submit(job) for name, job in jobs.items()}
        for one in futures.values():
            one.exception(LONG)
    assert ground.wrong == []
    assert ground.active == 0
    return futures


def test_each_round_doubles_the_boards_that_have_it() -> None:
    ground = Ground()
    entered: list[threading.Event] = []

    def work(_sha: str, _relayed: bool) -> bool:
        gate = threading.Event()
        with ground.lock:
            entered.append(gate)
        return gate.wait(LONG)

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(ground.board, f"b{n}", ["x"], work) for n in range(8)]

        def at_least(wanted: int) -> bool:
            return len(entered) >= wanted

        done = 0
        for expected in (1, 1, 2, 4):  # the seed, then as many as have it
            until(partial(at_least, done + expected))
            assert ground.active == expected
            for gate in entered[done:]:
                gate.set()
            done += expected
        for one in futures:
            one.result(LONG)
    assert ground.seeds == {"x": 1}
    assert ground.wrong == []


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
def test_more_boards_than_threads(threads: int) -> None:
    ground = Ground()
    blobs = ["x", "y", "z"]

    def work(_sha: str, _relayed: bool) -> bool:
        return True

    jobs = {f"b{n}": partial(ground.board, f"b{n}", blobs, work) for n in range(16)}
    for one in run(ground, jobs, threads).values():
        one.result()
    assert ground.seeds == dict.fromkeys(blobs, 1), "the workstation sends each once"


@pytest.mark.parametrize("seed", range(20))
def test_nobody_waits_for_ever_whatever_fails(seed: int) -> None:
    rng = random.Random(seed)
    ground = Ground()
    blobs = [f"s{n}" for n in range(rng.randint(1, 4))]
    fates = iter([rng.random() for _ in range(2000)])
    lock = threading.Lock()
    lost: set[str] = set()

    def work(sha: str, relayed: bool) -> bool:
        with lock:
            fate = next(fates)
        time.sleep(fate / 500)
        if fate < 0.15:
            raise ConnectionLostError(f"the link broke at {sha}")
        return not (relayed and fate < 0.35)

    def job(name: str) -> None:
        try:
            ground.board(name, blobs, work)
        except ConnectionLostError:
            lost.add(name)

    names = [f"b{n}" for n in range(12)]
    jobs = {name: partial(job, name) for name in names}
    for one in run(ground, jobs, rng.choice([2, 5, 12])).values():
        one.result()
    assert lost < set(names)


def test_a_seed_that_fails_frees_its_place() -> None:
    near = Neighbours()
    ground = Ground(near)

    def cut(_sha: str, _relayed: bool) -> bool:
        raise ConnectionLostError("cut")

    with pytest.raises(ConnectionLostError):
        ground.board("a", ["x"], cut)
    assert ground.seeds == {"x": 1}
    with near.turn(LAN, holder("b"), ["x"], Deadline(LONG), nothing) as turn:
        assert turn.source is None


def test_who_waits_is_told_to_stop() -> None:
    near = Neighbours()

    def cancelled() -> None:
        raise CancelledError("cancelled")

    with near.turn(LAN, holder("a"), ["x"], Deadline(LONG), nothing):
        turn = near.turn(LAN, holder("b"), ["x"], Deadline(LONG), cancelled)
        with pytest.raises(CancelledError), turn:
            pass


def test_patience_ends_at_the_workstation() -> None:
    near = Neighbours()
    with near.turn(LAN, holder("a"), ["x"], Deadline(LONG), nothing):
        with near.turn(LAN, holder("b"), ["x"], Deadline(0.01), nothing) as turn:
            assert turn.source is None
        # b's turn was none of the places: a still has that of x.
        with near.turn(LAN, holder("c"), ["x", "y"], Deadline(LONG), nothing) as turn:
            assert (turn.sha, turn.source) == ("y", None)


def test_a_busy_holder_is_waited_for_and_a_free_blob_is_taken_meanwhile() -> None:
    near = Neighbours()
    near.have(LAN, holder("a"), ["x"])
    with near.turn(LAN, holder("b"), ["x"], Deadline(LONG), nothing) as first:
        assert first.source == holder("a")
        with near.turn(LAN, holder("c"), ["x", "y"], Deadline(LONG), nothing) as other:
            assert (other.sha, other.source) == ("y", None)


def test_other_lans_are_other_worlds() -> None:
    near = Neighbours()
    near.have("other", holder("a"), ["x"])
    with near.turn(LAN, holder("b"), ["x"], Deadline(LONG), nothing) as turn:
        assert turn.source is None


def source_of(near: Neighbours, name: str, sha: str) -> str:
    with near.turn(LAN, holder(name), [sha], Deadline(LONG), nothing) as turn:
        return turn.source.peer.name if turn.source else ""


def test_a_damaged_blob_is_asked_for_no_more() -> None:
    near = Neighbours()
    near.have(LAN, holder("a"), ["x", "y"])
    with near.turn(LAN, holder("b"), ["x"], Deadline(LONG), nothing) as turn:
        near.damaged(LAN, turn)
    assert source_of(near, "c", "x") == ""
    assert source_of(near, "c", "y") == "a"


def test_a_board_that_broke_off_serves_nothing_more() -> None:
    near = Neighbours()
    near.have(LAN, holder("a"), ["x", "y"])
    with near.turn(LAN, holder("b"), ["x"], Deadline(LONG), nothing) as turn:
        near.broke(LAN, turn)
    assert source_of(near, "c", "y") == ""


def test_a_board_that_gets_in_nowhere_serves_nothing_more() -> None:
    near = Neighbours()
    near.have(LAN, holder("a"), ["x"])
    for number in range(STRIKES):
        with near.turn(LAN, holder(f"b{number}"), ["x"], Deadline(LONG), nothing) as turn:
            assert turn.source == holder("a")
            near.shut_out(LAN, turn, f"b{number}")
    assert source_of(near, "c", "x") == ""


def test_nobody_gets_its_own() -> None:
    near = Neighbours()
    near.have(LAN, holder("a"), ["x"])
    assert source_of(near, "a", "x") == ""
