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
def source() -> str:
    """The probe without its comments: dropbear takes no command of 9000 bytes or more.

    MAX_CMD_LEN in src/sysoptions.h of mkj/dropbear (2024.85).
    """
    lines = (files("fleet.facts") / "probe.sh").read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("# ")) + "\n"


def gather(transport: Transport, host: Host, deadline: Deadline) -> Facts:
    """All facts of `host`. Raises a TransportError, or DeviceError for an answer that was cut."""
    result = transport.run(script(source(), host.base_dir), deadline)
    return parse(result.text, host=host.name, soc=host.soc, complaint=result.error_text)
