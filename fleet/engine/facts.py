"""What devices are, and nothing else: the work of `fleet facts`."""

from __future__ import annotations

from fleet.engine.pool import DeviceResult
from fleet.engine.session import Session
from fleet.engine.states import gathered


def gather_facts(session: Session, result: DeviceResult) -> None:
    """One round trip; `details["facts"]` are the Facts."""
    result.details["facts"] = gathered(session)
    result.outcome = "ok"
