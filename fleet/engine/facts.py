"""The work of `fleet facts`: read the facts of a device and nothing else."""

from __future__ import annotations

from fleet.engine.pool import DeviceResult
from fleet.engine.session import Session
from fleet.engine.states import gathered
from fleet.model.facts import Facts


def gather_facts(session: Session, result: DeviceResult[Facts]) -> None:
    """Read the facts of a device, in one round trip."""
    result.value = gathered(session)
    result.outcome = "ok"
