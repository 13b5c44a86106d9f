"""What a rollout needs of the deploy that it sends out in waves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from fleet.engine.deploy.release_builder import ReleaseBuilder
from fleet.engine.options import DeployOptions
from fleet.engine.pool import DeviceResult, Value, Work
from fleet.engine.rollout.inputs import Inputs
from fleet.engine.rollout.waves import Wave
from fleet.engine.session import Session
from fleet.model.events import Listener
from fleet.model.inventory import Host
from fleet.model.playbook import Playbook
from fleet.profiles.runs import RunStore


class Deployment(Protocol):
    """A playbook on hosts; `engine.deploy.operation.Operation` is one."""

    playbook: Playbook
    hosts: tuple[Host, ...]
    options: DeployOptions
    run_id: str
    inputs: Inputs | None
    owed: frozenset[str]
    runs: RunStore
    builder: ReleaseBuilder

    @property
    def afar(self) -> bool:
        """True if the workers of a cluster do the work."""

    def waves(self) -> tuple[Wave, ...]:
        """Which device is reached in which wave."""

    def bring(self, session: Session, result: DeviceResult[None]) -> None:
        """Deploy to one device; one of `owed` also gets what may be missing after its switch."""

    def everywhere(
        self,
        work: Work[Value],
        hosts: Sequence[Host],
        listener: Listener,
        *,
        admit: Callable[[Host], bool] | None = None,
        done: Callable[[DeviceResult[Value]], None] | None = None,
    ) -> list[DeviceResult[Value]]:
        """`work` on these hosts, as the options say."""
