"""A board for pushes: this machine behind a real sshd, with a base folder of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from fleet.engine.deploy import push as pushing
from fleet.engine.deploy.push import Push, PushOptions
from fleet.engine.pool import DeviceResult
from fleet.engine.session import Session
from fleet.engine.states import facts_of
from fleet.engine.transfer.context import TransferOptions
from fleet.model.events import Event
from fleet.model.facts import Facts
from fleet.model.inventory import Host
from tests.transport.sshd import Sshd, running


@pytest.fixture(scope="session")
def board_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running(tmp_path_factory.mktemp("board")) as server:
        yield server


@dataclass
class Target:
    host: Host
    base: Path
    server: Sshd
    events: list[Event] = field(default_factory=list)

    def push(
        self,
        *sources: Path,
        name: str = "app",
        transfer: TransferOptions | None = None,
        verify: bool = False,
    ) -> DeviceResult[Any]:
        options = PushOptions(transfer=transfer or TransferOptions(compress="never"), verify=verify)
        return self.work(sources, name, options).push()[0]

    def work(self, sources: Sequence[Path], name: str, options: PushOptions) -> Push:
        return Push(name, sources, [self.host], self.events.append, options)

    @property
    def current(self) -> Path:
        return self.base / "current" / "app"


@pytest.fixture
def target(board_server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
    base = tmp_path / "base"
    return Target(board_server.host(base_dir=str(base)), base, board_server)


def without_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's Python is not seen: its shell does all."""

    def facts(session: Session, *, short: bool = False) -> Facts:
        found = facts_of(session, short=short)
        return structs.replace(found, tools=replace(found.tools, python3=None))

    monkeypatch.setattr(pushing, "facts_of", facts)
