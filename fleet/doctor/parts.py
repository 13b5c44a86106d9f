"""What a maintainer wants to see of a device: raw texts by name, in one round trip."""

from __future__ import annotations

import json

from fleet.device.shell import device_script
from fleet.doctor.seen import Seen
from fleet.engine.session import Session
from fleet.model.errors import FleetError, TransportError
from fleet.model.facts import Facts

_SECONDS = 90.0
_HEAD = "== "


def secrets_of(facts: Facts) -> tuple[str, ...]:
    """Words that tell this very device. A host name that is the chip's or the system's is none."""
    public = f"{facts.os_id} {facts.os_name} {facts.soc} localhost".lower()
    serial = facts.android.serialno if facts.android else None
    words = (facts.machine_id, facts.serial_number, serial)
    name = facts.hostname or ""
    own = (*words, name if name.lower() not in public else "")
    return tuple(word for word in own if word and len(word) > 3)


def raw_parts(session: Session, seen: Seen) -> dict[str, str]:
    """Name → what the device said; `facts` and `probe` are what was seen before.

    A device that cannot say it gives the reason instead.
    """
    probe = "\n".join(f"{key}\t{value}" for key, rows in seen.lines.items() for value in rows)
    facts = json.dumps(seen.facts.as_dict(), indent=1)
    return {"facts": facts, "probe": probe, **_said(session)}


def _said(session: Session) -> dict[str, str]:
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
