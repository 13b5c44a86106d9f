"""Old or new, never between: the link cut after and during every command of a deploy.

A small release whose health probe is a trivial real program, so that every place can be cut.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from pathlib import Path
from typing import Any

import pytest

from fleet.engine.deploy.switch import apply_plan
from fleet.engine.session import Session
from fleet.engine.states import ask_state
from fleet.facts.gather import gather
from fleet.model.command import Command, Result
from fleet.model.deadline import Deadline
from fleet.model.errors import FleetError, TransportError
from fleet.model.files import file_ref
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest
from fleet.model.plan import DevicePlan
from fleet.ops.release import actions_for
from tests.chaos import Chaos
from tests.transport.sshd import Sshd

HEALTH = {"argv": ["true"], "cwd": ".", "config": "", "timeout": 20}


def make(folder: Path, marker: str) -> Manifest:
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number in range(3):
        path = folder / f"{marker}-{number}"
        path.write_bytes((marker * 40_000 + str(number)).encode())
        files.append(file_ref(path, f"lib/file {number}.so", executable=number == 1))
    return Manifest("app", tuple(files), {"A": marker}, (), {"health": HEALTH, "v": marker})


class Cutter:
    """A transport that breaks at its n-th command: before it, or after it was carried out."""

    def __init__(self, inner: Any, at: int, *, after: bool) -> None:
        self._inner, self._left, self._after = inner, at, after
        self.traffic = inner.traffic

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def run(self, command: Command, deadline: Deadline, **streams: Any) -> Result:
        self._left -= 1
        if self._left < 0:
            raise TransportError("the link is gone")
        if self._left == 0 and not self._after:
            raise TransportError("the link broke")
        done: Result = self._inner.run(command, deadline, **streams)
        if self._left == 0:
            raise TransportError("the link broke")
        return done


def deploy(host: Host, app: Manifest, *, cut: int = 0, after: bool = False) -> str:
    session = Session(host, lambda _: None)
    session.open()
    try:
        facts = gather(session.transport, host, Deadline(30))
        if cut:
            session.transport = Cutter(session.transport, cut, after=after)
        state = ask_state(session, facts, app)
        actions = actions_for(app, state, 2)
        plan = DevicePlan(host, facts, "t", app, actions=actions, current=state.current)
        apply_plan(session, plan, "run")
    finally:
        session.close()
    return "changed" if actions else "unchanged"


def check(base: Path, old: Manifest, new: Manifest) -> str:
    """Which release is live; whole in either case."""
    live = (base / "current" / "app").resolve()
    app = {old.id: old, new.id: new}[live.name]
    for item in app.files:
        content = (base / "current" / "app" / item.name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == item.sha256
    for blob in (base / "store").iterdir():
        if not blob.name.endswith(".part"):
            assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name
    return "new" if app is new else "old"


@pytest.fixture
def place(board_server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Host, Path]:
    monkeypatch.setattr("fleet.engine.transfer.upload.TRIES", 1)
    base = tmp_path / "base"
    return board_server.host(base_dir=str(base)), base


@pytest.mark.parametrize("after", [pytest.param(False, marks=pytest.mark.slow), True])
def test_every_prefix_of_a_deploy(place: tuple[Host, Path], tmp_path: Path, after: bool) -> None:
    host, base = place
    seen = []
    for cut in range(1, 30):
        old = make(tmp_path / f"old{cut}", f"o{cut}")
        new = make(tmp_path / f"new{cut}", f"n{cut}")
        deploy(host, old)
        try:
            deploy(host, new, cut=cut, after=after)
            whole = True
        except TransportError:
            whole = False
        seen.append(check(base, old, new))
        assert deploy(host, new) in {"changed", "unchanged"}
        assert check(base, old, new) == "new"
        assert deploy(host, new) == "unchanged"
        if whole:
            break
    assert whole, "the loop must reach the end of the deploy"
    assert len(seen) >= 5, "state, lease, send and stage, health, switch and prune"
    assert seen[0] == "old"
    assert seen == sorted(seen, reverse=True), "once new, never old again"


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(one, marks=pytest.mark.slow) for one in range(3, 8))]
)
def test_a_cut_at_any_byte(place: tuple[Host, Path], tmp_path: Path, seed: int) -> None:
    host, base = place
    dice = random.Random(seed)
    old, new = make(tmp_path / "old", "o"), make(tmp_path / "new", "n")
    deploy(host, old)
    for _ in range(3):
        budget = dice.randrange(2_000, 420_000)
        with Chaos(int(host.port or 0), [budget]) as cable, contextlib.suppress(FleetError):
            deploy(cable.through(host, tmp_path), new)
        check(base, old, new)
    deploy(host, new)
    assert check(base, old, new) == "new"
    assert deploy(host, new) == "unchanged"
