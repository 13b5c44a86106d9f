"""A board behind a real sshd on which the tiny model is deployed and served."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from fleet.config.playbook import load_playbook
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.options import DeployOptions
from fleet.engine.pool import DeviceResult
from fleet.engine.serving.service import Serving
from fleet.engine.serving.tunnel import Tunnel
from fleet.engine.session import Session
from fleet.engine.transfer.context import TransferOptions
from fleet.model.inventory import Host
from fleet.model.plain import to_plain
from fleet.model.playbook import Playbook
from fleet.profiles.runs import RunStore
from fleet.runtimes.store import RuntimeStore
from tests.transport.sshd import Sshd, free_port, running

ROOT = Path(__file__).parents[3]
QUEUE = 8
PLAYBOOK = ROOT / "playbooks" / "tiny-service.yaml"


@dataclass
class Service:
    """One board, one playbook; the model is deployed."""

    host: Host
    playbook: Playbook
    base: Path
    store: RuntimeStore
    runs: RunStore
    said: list[object]

    @property
    def folder(self) -> Path:
        return self.base / "serve" / self.playbook.name

    def operation(self) -> Operation:
        options = DeployOptions(run="never", transfer=TransferOptions(compress="never"))
        return Operation(
            self.playbook,
            [self.host],
            self.said.append,
            options=options,
            resources=Resources(self.store, self.runs),
        )

    def deploy(self) -> None:
        (done,) = self.operation().deploy()
        assert done.error is None, done.error

    @contextlib.contextmanager
    def running(self) -> Iterator[Service]:
        """Deploy and start the service; stop it at the end."""
        self.deploy()
        try:
            done = self.start()
            assert done.error is None, done.error
            yield self
        finally:
            self.serving().stop()

    def serving(self) -> Serving:
        return Serving(self.playbook, [self.host], self.said.append)

    def start(self, *, again: bool = False, unit: str = "none") -> DeviceResult[Any]:
        (done,) = self.serving().start(self.operation(), unit=unit, again=again)
        return done

    def status(self) -> dict[str, object]:
        (done,) = self.serving().status()
        return {
            "outcome": done.outcome,
            "text": done.text,
            **(to_plain(done.value) if done.value else {}),
        }

    def token(self) -> str:
        (done,) = self.serving().token()
        return done.answer.reveal()

    @contextlib.contextmanager
    def tunnel(self) -> Iterator[str]:
        session = Session(self.host, self.said.append)
        session.open()
        assert self.playbook.serve is not None
        try:
            with Tunnel(session, self.playbook.serve.port, say=self.said.append) as opened:
                yield opened.url
        finally:
            session.close()

    @contextlib.contextmanager
    def client(self) -> Iterator[httpx.Client]:
        head = {"Authorization": f"Bearer {self.token()}"}
        with (
            self.tunnel() as url,
            httpx.Client(
                base_url=url, headers=head, timeout=120, trust_env=False, verify=False
            ) as client,
        ):
            yield client


@pytest.fixture(scope="session")
def service_board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running(tmp_path_factory.mktemp("served")) as server:
        yield server


def service_on(board: Sshd, folder: Path, store: RuntimeStore) -> Service:
    playbook = load_playbook(PLAYBOOK)
    assert playbook.serve is not None
    playbook = replace(playbook, serve=replace(playbook.serve, port=free_port(), queue=QUEUE))
    base = folder / "base with space"
    host = board.host(base_dir=str(base), soc="QCS9075")
    return Service(host, playbook, base, store, RunStore(folder / "runs"), [])


@pytest.fixture(scope="module")
def served(
    service_board: Sshd, tmp_path_factory: pytest.TempPathFactory, qairt_store: RuntimeStore
) -> Iterator[Service]:
    """One service for the tests of a module; it runs when a test begins."""
    with service_on(service_board, tmp_path_factory.mktemp("board"), qairt_store).running() as one:
        yield one


@pytest.fixture
def deployed(service_board: Sshd, tmp_path: Path, qairt_store: RuntimeStore) -> Iterator[Service]:
    """A board of its own for one test; what it starts is stopped."""
    one = service_on(service_board, tmp_path, qairt_store)
    one.deploy()
    yield one
    one.serving().stop()
