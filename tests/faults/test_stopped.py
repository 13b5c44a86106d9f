"""Hang in step X beside killed in step X: outcome, exit code, what is live, what comes next."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.config.inventory import load_inventory
from fleet.engine.lease import lease as leasing
from fleet.engine.session import Session
from fleet.model.errors import TransportError
from fleet.model.events import Event
from fleet.model.inventory import DEFAULT_CONNECT_SECONDS
from tests.chaos import Chaos
from tests.engine.rollout.boards import Yard, yard

from .stopping import LOOK, ROWS, Files, Row, stopper, work
from .watch import Watch

# One of each command with every change; all of them take minutes.
FAST = {("deploy", "switch"), ("push", "send"), ("run", "run")}
each_row = pytest.mark.parametrize(
    "row",
    [
        pytest.param(
            row,
            id=f"{row.command}-{row.step}",
            marks=() if (row.command, row.step) in FAST else pytest.mark.slow,
        )
        for row in ROWS
        if row.command != "provision"
    ],
)


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
    with yard(tmp_path, 1) as made:
        yield made


def prepared(board: Yard, command: str) -> str | None:
    """The old release is live, and the sources are those of a new one but for `run`."""
    hosts = list(load_inventory(board.inventory).hosts)
    before = "push" if command == "push" else "deploy"
    assert work(before, board.playbook, hosts, board.home, lambda _: None).error is None
    if command != "run":
        board.write_model("two", 300_000)
    return board.current("b1")


def live(board: Yard, old: str | None, command: str) -> str:
    if board.current("b1") != old:
        return "new"
    return "same" if command == "run" else "old"


def again(board: Files, command: str) -> str:
    """The same command, by the clock of this machine: a lease that is waited for is a failure."""
    hosts = list(load_inventory(board.inventory).hosts)
    result = work(command, board.playbook, hosts, board.home, lambda _: None)
    assert result.error is None, result.error
    return result.outcome


def hang(board: Files, row: Row, folder: Path) -> tuple[str, int]:
    """A link that swallows all from there on: outcome and exit code."""
    watch, sessions, worker = Watch(), [], []  # type: ignore[var-annotated]
    swallowed: list[bool] = []
    made = Session.open
    (host,) = load_inventory(board.inventory).hosts

    def at_it() -> set[threading.Thread]:
        lease = sessions[0].lease if sessions else None
        assert lease is None or isinstance(lease, leasing.Lease)
        renewing = {lease._thread} if lease is not None and lease._thread.is_alive() else set()
        return {*renewing, worker[0]}

    with pytest.MonkeyPatch.context() as patch, Chaos(host.port or 0) as link:
        watch.plug_in(patch)

        def stop() -> None:
            link.swallow()
            swallowed.append(True)

        def opened(session: Session) -> None:
            try:
                made(session)
            except TransportError:
                watch.sleep(DEFAULT_CONNECT_SECONDS)
                raise
            if not sessions:
                sessions.append(session)
                worker.append(threading.current_thread())
                session.host = replace(session.host, connect_timeout=0.5)  # of real time
                watch.start(lambda: bool(swallowed), at_it)
                if row.step == LOOK:
                    stop()

        patch.setattr(Session, "open", opened)
        events: list[Event] = []
        through = link.through(host, folder)
        hear = stopper(row.step, stop)

        def heard(event: Event) -> None:
            events.append(event)
            hear(event)

        result = work(row.command, board.playbook, [through], board.home, heard)
        assert swallowed, result.error or "the step began"
    return result.outcome, result.error.exit_code if result.error else 0


@each_row
def test_a_hang_in_a_step(board: Yard, tmp_path: Path, row: Row) -> None:
    old = prepared(board, row.command)
    assert hang(board, row, tmp_path) == ("unreachable", 3)
    assert live(board, old, row.command) in row.hang.split(" or ")
    assert again(board, row.command) in row.again_hang.split(" or ")
    assert live(board, old, row.command) == ("same" if row.command == "run" else "new")


def kill(board: Files, row: Row) -> None:
    """A process of its own, by SIGKILL."""
    words = [str(board.playbook), str(board.inventory), str(board.home), row.command, row.step]
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.stopping", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == -9, done.stderr


@each_row
def test_killed_in_a_step(board: Yard, row: Row) -> None:
    old = prepared(board, row.command)
    kill(board, row)
    assert live(board, old, row.command) in row.killed.split(" or ")
    assert again(board, row.command) in row.again_killed.split(" or ")
    assert live(board, old, row.command) == ("same" if row.command == "run" else "new")
