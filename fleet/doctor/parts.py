"""What a maintainer wants to see of a device: raw texts by name, in one round trip."""

from __future__ import annotations

import json

from fleet.device.shell import device_script
from fleet.doctor.redaction import known_words, shape
from fleet.doctor.seen import Seen
from fleet.engine.session import Session
from fleet.model.errors import FleetError, TransportError
from fleet.model.facts import Facts
from fleet.model.plain import to_plain

_SECONDS = 90.0
_HEAD = "== "


def own_words(facts: Facts) -> tuple[tuple[str, str], ...]:
    """(kind, word) of what tells this very device or its user.

    A host name that is also the chip's or the system's tells nobody; a login that is also a word
    of logs, such as `ubuntu`, is of the kind `login`, which is replaced only where it is one.
    """
    public = f"{facts.os_id} {facts.os_name} {facts.soc} localhost".lower()
    android = facts.android
    ids = (facts.machine_id, facts.serial_number, facts.boot_id, android and android.serialno)
    found = [("id", word) for word in ids if word and len(word) > 3]
    host, user = facts.hostname or "", facts.user.name or ""
    if len(host) > 1 and host.lower() not in public:
        found.append(("host", host))
    if user:
        known = user.lower() in public or shape(user) in known_words()
        found.append(("login" if known else "user", user))
    found += [
        ("group", name)
        for name in {*facts.user.groups_db, *facts.user.groups_live}
        if name != user and shape(name) not in known_words()
    ]
    return tuple(found)


def raw_parts(session: Session, seen: Seen) -> dict[str, str]:
    """Name → what the device said; `facts` and `probe` are what was seen before.

    A device that cannot say it gives the reason instead.
    """
    probe = "\n".join(f"{key}\t{value}" for key, rows in seen.lines.items() for value in rows)
    facts = json.dumps(to_plain(seen.facts), indent=1)
    return {"facts": facts, "probe": probe, **_said(session)}


def _said(session: Session) -> dict[str, str]:
    try:
        said = session.run(device_script("parts"), "parts", seconds=_SECONDS)
    except TransportError as error:  # a program of the device that hangs
        session.reopen()
        return {"parts": error.message}
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
