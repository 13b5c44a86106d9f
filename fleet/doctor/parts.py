"""What a maintainer wants to see of a device: raw texts by name, in one round trip."""

from __future__ import annotations

from fleet.device.shell import device_script
from fleet.engine.session import Session
from fleet.model.errors import FleetError, TransportError

_SECONDS = 90.0
_HEAD = "== "


def raw_parts(session: Session) -> dict[str, str]:
    """Name → what the device said. A device that cannot say it gives the reason instead."""
    try:
        said = session.run(device_script("parts"), "parts", seconds=_SECONDS)
    except TransportError:
        raise
    except FleetError as error:  # a Windows PC has no such script
        return {"parts": error.message}
    found: dict[str, str] = {}
    name = "before"
    for line in said.text.splitlines(keepends=True):
        if line.startswith(_HEAD):
            name = line.removeprefix(_HEAD).strip()
        else:
            found[name] = found.get(name, "") + line
    return {key: text.strip() + "\n" for key, text in found.items() if text.strip()}
