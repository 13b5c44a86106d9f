"""Leases by a model: two writers, and a board whose time, boots and links do anything.

`Model` is what docs/leases.md says of a board. Each command that reaches the board is run by the
real scripts on real files, or by the Python program, and its answer is compared with the model's.
Of the writers the promises are asserted: no step runs without the lease, no wrong reason is given,
and nobody is locked out.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Lock
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from fleet.engine.lease.lease import Lease
from fleet.engine.lease.states import Standing, State
from fleet.engine.session import Session
from fleet.model.command import Command, Result
from fleet.model.deadline import Deadline
from fleet.model.errors import (
    ConnectionLostError,
    LeaseHeldError,
    LeaseLostError,
)
from fleet.model.inventory import Host
from fleet.model.lease import Ticket
from fleet.ops.lease import (
    GIVEN_BACK,
    LOST_STATUS,
    drop_command,
    freed,
    lost_words,
    parse_lease,
    who_command,
)
from fleet.transport.base import Identity, Traffic
from tests.ops.board import LeaseBoard
from tests.transport.windows.board import PcLeaseBoard

TTL = 6000  # so long that the time that the test itself takes is nothing
SHORT, LONG = 2500, 7000
FAULTS: tuple[tuple[str, ...], ...]
FAULTS = tuple((*first, how) for first in ((), ("",)) for how in ("unsent", "unheard", "late"))
WHO = st.sampled_from((0, 1))
TO = {  # the transitions that states.py documents
    State.FREE: {State.ASKED, State.HELD},  # HELD: the same answer says whose it is
    State.ASKED: {State.FREE},
    State.HELD: {State.ENDING, State.FREE, State.LOST, State.LAPSED},
    State.ENDING: {State.HELD, State.FREE, State.DOUBTFUL, State.LOST, State.LAPSED},
    State.DOUBTFUL: {State.ASKED, State.LAPSED},
    State.LOST: set(),
    State.LAPSED: set(),
}


@dataclass
class Generation:
    token: str
    until: float
    released: bool = False


@dataclass
class Model:
    """The board as docs/leases.md has it. `now` is its uptime as the test moves it."""

    now: float = 0.0
    every: dict[int, Generation] = field(default_factory=dict)

    @property
    def top(self) -> int:
        return max(self.every, default=0)

    @property
    def holder(self) -> str:
        """The token of who holds; "" when nobody does."""
        last = self.every.get(self.top)
        return last.token if last and not last.released and last.until > self.now else ""

    def take(self, token: str, ttl: int, dead: str) -> int | None:
        if self.holder and dead != f"{self.top}:{self.holder}":
            return None
        number = self.top + 1
        self.every[number] = Generation(token, self.now + ttl)
        self.every = {n: one for n, one in self.every.items() if n >= number - 1}
        return number

    def guard(self, number: int, token: str, ttl: int, mode: str) -> str:
        """Why the guard refuses; "": it goes on."""
        mine = self.every.get(number)
        if mine is None or mine.token != token:
            return "gone"
        if mine.released:
            return "released"
        if mine.until <= self.now and mode != "revive":
            return "expired"
        mine.until = self.now + ttl
        return "" if number == self.top else "taken"

    def drop(self) -> None:
        if self.holder:
            self.every[self.top + 1] = Generation("", 0.0, released=True)


class CutError(ConnectionLostError):
    """The link that the test broke."""


class Link:
    """A transport whose commands reach the board and the model, or not."""

    system, second, describe = "posix", "", "model"

    def __init__(self, world: World) -> None:
        self.world, self.traffic = world, Traffic()
        self.faults: list[str] = []
        self.beside: Callable[[], object] | None = None

    def open(self, deadline: Deadline) -> None: ...

    def close(self) -> None: ...

    def identity(self, deadline: Deadline) -> Identity:
        return Identity("local", "board")

    def run(self, command: Command, deadline: Deadline, **_: Any) -> Result:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "late":
            self.world.late.append(command)
        if fault in {"unsent", "late"}:
            raise CutError("the command did not arrive")
        result = self.world.execute(command)
        beside, self.beside = self.beside, None
        if beside is not None and command.argv[-1] != "keep":
            beside()  # the renewing thread, after the board did it and before its answer is read
        if fault == "unheard":
            raise CutError("the answer did not arrive")
        return result


class World(RuleBasedStateMachine):
    """Two workstations, a board and what happens to them."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.folder = Path(tempfile.mkdtemp())
        python = kind == "python"
        self.board = PcLeaseBoard(self.folder, "dash") if python else LeaseBoard(self.folder, kind)
        self.model = Model()
        self.clock = 1e6
        self.ran = self.sent = 0
        self.late: list[Command] = []  # they arrive before the next step of anybody
        self.patch.setattr(tempfile, "tempdir", str(self.folder))
        for room in ("lease.lease", "session"):
            self.patch.setattr(f"fleet.engine.{room}.awake_clock", lambda: self.clock)
        self.patch.setattr("fleet.engine.session.transport_for", lambda *_, **__: self.fresh())
        still = SimpleNamespace(start=lambda: None, is_alive=lambda: False)  # see tend
        fake = SimpleNamespace(Lock=Lock, Event=Event, Thread=lambda **_: still)
        self.patch.setattr("fleet.engine.lease.lease.threading", fake)
        self.links: list[Link] = []
        self.sessions = [self.session(), self.session()]
        self.leases: list[Lease | None] = [None, None]

    def fresh(self) -> Link:
        self.links.append(Link(self))
        return self.links[-1]

    def session(self) -> Session:
        made = Session(Host("board"), lambda _: None)
        made.boot = "first"
        return made

    def teardown(self) -> None:
        try:
            for who in (0, 1):
                self.leave(who)
            self.newcomer()
        finally:
            self.patch.undo()
            shutil.rmtree(self.folder)

    # What the board does, and what the model says of it.

    def execute(self, command: Command) -> Result:
        assert command.call is not None
        self.sent += 1
        if command.call.name == "lease_guard" and command.argv[-1] != "keep" and self.late:
            late, self.late, ran = self.late, [], self.ran
            for one in late:
                self.execute(one)
            self.ran = ran
        done = self.board.do(command)
        result = Result(done.returncode, done.stdout, done.stderr, 0.0)
        words = command.call.args
        match command.call.name:
            case "lease_take":
                number = self.model.take(words[4], int(words[5]), words[6])
                assert parse_lease(result.text, "board").got == number
            case "lease_free":
                number, token = int(words[1]), words[2]
                mine = self.model.every.get(number)
                known = mine is not None and mine.token == token
                assert parse_lease(result.text, "board").freed == known
                if mine is not None and known:
                    mine.released = True
            case "lease_guard":
                self.guarded(words, result)
            case "boot_id":
                result = Result(0, b"this\n", b"", 0.0)
        return result

    def guarded(self, words: tuple[str, ...], result: Result) -> None:
        number, token, ttl, mode = int(words[1]), words[2], int(words[3]), words[4]
        why = self.model.guard(number, token, ttl, mode)
        ticket = Ticket(words[0], number, token, ttl)
        assert (result.status == LOST_STATUS) == bool(why)
        said = lost_words(ticket, result.status, result.error_text)
        assert bool(said) == bool(why)
        assert (said == GIVEN_BACK) == (why == "released")
        if not why and words[5:]:
            assert token == self.model.holder, "a step ran that had no lease"
            self.ran += 1
            ends = mode.endswith("f") and result.ok
            assert freed(ticket, result.error_text) == ends
            self.model.every[number].released = ends

    def lease(self, who: int) -> Lease:
        found = self.leases[who]
        if found is None:
            session = self.sessions[who]
            found = self.leases[who] = Lease(session, "model", ttl=TTL)
            found._change = self.watched(found, found._change)  # type: ignore[method-assign]
            found.__enter__()
        return found

    def watched(self, lease: Lease, change: Callable[..., Standing]) -> Callable[..., Standing]:
        def wrapper(*args: Any, **more: Any) -> Standing:
            before, after = lease._standing.state, change(*args, **more).state
            assert after is before or after in TO[before], (before, args[0], after)
            return lease._standing

        return wrapper

    def others_hold(self, who: int) -> bool:
        """A lease of somebody who is still at work."""
        other = self.leases[1 - who]
        claim = other._claim if other is not None else None
        return claim is not None and self.model.holder == claim.token

    # What happens.

    @rule(who=WHO, ends=st.booleans(), works=st.booleans(), beside=st.booleans())
    def a_step(self, who: int, ends: bool, works: bool, beside: bool) -> None:
        self.step(who, ends, works, beside=beside)

    @rule(who=WHO, ends=st.booleans(), again=st.booleans(), fault=st.sampled_from(FAULTS))
    def a_step_over_a_broken_link(
        self, who: int, ends: bool, again: bool, fault: tuple[str, ...]
    ) -> None:
        self.step(who, ends, fault=fault)
        if again:
            self.sessions[who].reopen()

    def step(
        self,
        who: int,
        ends: bool,
        works: bool = True,
        beside: bool = False,
        fault: tuple[str, ...] = (),
    ) -> None:
        session, lease = self.sessions[who], self.lease(who)
        link = session.transport
        assert isinstance(link, Link)
        link.faults = list(fault)
        if beside:
            link.beside = lease._tend
        was, ran, before = lease._standing, self.ran, self.others_hold(who)
        late, sent = was.returnable is not None and self.clock - was.renewed >= TTL, self.sent
        command = self.board.step if works else self.board.failing
        try:
            done = session.run(command, "step", mutates=True, ends=ends)
        except LeaseHeldError:
            assert before
            assert lease._standing.state is State.FREE
            assert self.ran == ran
        except LeaseLostError:
            assert lease._standing.over
            assert was.ticket is not None, "it never had one"
            mine = self.model.every.get(was.ticket.generation)
            ours = mine is not None and mine.token == was.ticket.token
            assert late or not ours or self.model.holder != was.ticket.token
            assert GIVEN_BACK not in lease._standing.why, "only the holder gives it back"
            assert self.ran == ran
        except CutError:
            assert fault
        except ConnectionLostError:
            assert lease._standing.state is State.FREE or was.cut_off(self.clock)
            assert self.ran == ran
        else:
            assert done.ok == works
            assert self.ran == ran + 1
            free = ends and works
            assert lease._standing.state is (State.FREE if free else State.HELD)
        if late:
            assert self.sent == sent, "nothing is sent any more"
        link.faults, link.beside = [], None

    @rule(who=WHO, fault=st.sampled_from(["", "", "unsent", "unheard"]))
    def tend(self, who: int, fault: str) -> None:
        """The renewing thread looks."""
        lease, link = self.leases[who], self.sessions[who].transport
        if lease is not None:
            assert isinstance(link, Link)
            link.faults = [fault]
            lease._tend()
            link.faults = []

    @rule(seconds=st.sampled_from((SHORT, SHORT, LONG)))
    def time_passes(self, seconds: int) -> None:
        self.clock += seconds
        self.model.now += seconds
        self.shift(lambda boot, until: f"{boot} {max(0, until - seconds)}")

    @rule()
    def somebody_reboots_the_board(self) -> None:
        self.reboot()

    def reboot(self) -> None:
        for one in self.model.every.values():
            one.until = self.model.now
        self.shift(lambda _, until: f"another-boot {until}")
        for session in self.sessions:
            session.boot = session.boot and "another"

    def shift(self, change: Callable[[str, int], str]) -> None:
        for name in ("keep", "step"):
            for path in self.board.folder.glob(f"write.*/{name}"):
                boot, until, *rest = path.read_text().split()
                path.write_text(" ".join((change(boot, int(until)), *rest)) + "\n")

    @rule(who=WHO, seconds=st.sampled_from((0, LONG)), taken=st.booleans())
    def the_holder_reboots_the_board(self, who: int, seconds: int, taken: bool) -> None:
        session, lease = self.sessions[who], self.lease(who)
        was = lease._standing
        try:
            with session.over_reboot():
                self.time_passes(seconds)
                self.reboot()
                if taken and self.leases[1 - who] is None:
                    self.newcomer()
                session.reopen()
        except LeaseLostError:
            assert was.over or self.model.holder != (was.ticket.token if was.ticket else "")
        session.boot = "first"

    @rule()
    def somebody_breaks_it(self) -> None:
        self.board.do(drop_command("eve@desk", "force", "e" * 32, force=True))
        self.model.drop()

    @rule(who=WHO, fault=st.sampled_from(["", "", "unsent", "unheard"]))
    def leave(self, who: int, fault: str = "") -> None:
        lease, link = self.leases[who], self.sessions[who].transport
        if lease is None:
            return
        assert isinstance(link, Link)
        link.faults = [fault]
        standing, gone = lease._standing, lease.gone
        lease.__exit__(None, None, None)
        self.leases[who], link.faults = None, []
        claim = lease._claim
        if claim is not None and not fault and not gone and standing.state is not State.ASKED:
            assert self.model.holder != claim.token, "it was not given back"

    def newcomer(self) -> None:
        """Somebody new gets the board at once, unless somebody who is at work has it."""
        session = self.session()
        with Lease(session, "new", ttl=TTL) as lease:
            if self.others_hold(0) or self.others_hold(1):
                with pytest.raises(LeaseHeldError):
                    lease.take()
            else:
                lease.take()
                assert lease.ticket is not None

    @rule()
    def somebody_new(self) -> None:
        self.newcomer()

    @invariant()
    def the_board_says_who_holds(self) -> None:
        held = parse_lease(self.board.do(who_command()).stdout.decode(), "board").held
        assert [one.token for one in held] == ([self.model.holder] if self.model.holder else [])


@pytest.mark.parametrize("kind", ["python", "dash", "busybox", "mksh"])
def test_two_writers_and_a_board(kind: str) -> None:
    limits = settings(max_examples=20, stateful_step_count=30)
    make: Any = partial(World, kind)
    run_state_machine_as_test(make, settings=limits)
