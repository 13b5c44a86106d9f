"""One board for engine tests: this machine behind a real sshd, with a base folder of its own.

Its chip cannot be seen, so the inventory names it, as a user would for a board that hides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fleet.config.playbook import load_playbook
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.options import DeployOptions
from fleet.engine.transfer.context import TransferOptions
from fleet.model.events import Event
from fleet.model.inventory import Host
from fleet.model.playbook import Playbook
from fleet.profiles.runs import RunStore
from fleet.runtimes.store import RuntimeStore
from tests.transport.sshd import Sshd, running

ROOT = Path(__file__).parents[2]
PLAYBOOK = ROOT / "playbooks" / "tiny-genie.yaml"


@dataclass
class Bench:
    """Everything to deploy onto one board."""

    host: Host
    playbook: Playbook
    store: RuntimeStore
    runs: RunStore
    base: Path
    server: Sshd
    events: list[Event] = field(default_factory=list)

    def operation(self, **changes: object) -> Operation:
        changes.setdefault(
            "transfer", TransferOptions(compress="never")
        )  # a slow hour would change the bytes
        options = DeployOptions(**changes)  # type: ignore[arg-type]
        return Operation(
            self.playbook,
            [self.host],
            self.events.append,
            options=options,
            resources=Resources(self.store, self.runs),
        )

    def current(self) -> str | None:
        link = self.base / "current" / self.playbook.name
        return link.resolve().name if link.is_symlink() else None

    def tree(self) -> dict[str, bytes | str]:
        """All that is on the board: a comparison shows whether something was touched."""
        return {
            str(p.relative_to(self.base)): str(p.readlink()) if p.is_symlink() else p.read_bytes()
            for p in sorted(self.base.rglob("*"))
            if p.is_symlink() or p.is_file()
        }


@pytest.fixture(scope="session")
def board_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running(tmp_path_factory.mktemp("board")) as server:
        yield server


@pytest.fixture
def bench(board_server: Sshd, tmp_path: Path, qairt_store: RuntimeStore) -> Bench:
    base = tmp_path / "base"
    playbook = load_playbook(PLAYBOOK)
    assert playbook.run is not None
    playbook = replace(playbook, run=replace(playbook.run, warmups=1, repeats=2))
    return Bench(
        board_server.host(base_dir=str(base), soc="QCS9075"),
        playbook,
        qairt_store,
        RunStore(tmp_path / "runs"),
        base,
        board_server,
    )


@pytest.fixture
def own_bundle(tmp_path: Path) -> Callable[[], Path]:
    """A copy of the tiny bundle that a test may change."""

    def make(name: str = "bundle") -> Path:
        target = tmp_path / name
        target.mkdir()
        for source in (ROOT / "assets" / "tiny-genie").iterdir():
            (target / source.name).write_bytes(source.read_bytes())
        (target / "SHA256SUMS").unlink()
        return target

    return make
