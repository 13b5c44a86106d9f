"""Facts of a device over a transport: exactly one round trip."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from fleet.facts.parse import parse
from fleet.model.command import script
from fleet.model.deadline import Deadline
from fleet.model.facts import Facts
from fleet.model.inventory import Host
from fleet.transport.base import Transport


@cache
def _source() -> str:
    return (files("fleet.facts") / "probe.sh").read_text("utf-8")


def gather(transport: Transport, host: Host, deadline: Deadline) -> Facts:
    """All facts of `host`. Raises a TransportError, or DeviceError for an answer that was cut."""
    result = transport.run(script(_source(), host.base_dir), deadline)
    return parse(result.text, host=host.name, soc=host.soc)
