"""The raw texts of a device for a maintainer, read in one round trip."""

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
    """Return (kind, word) of the words that identify this device or its user.

    A host name that is also the name of the chip or the system identifies nobody. A login that is
    also a word of logs, such as `ubuntu`, has the kind `login`; it is replaced only where it is a
    login.
    """
    public = f"{facts.os_id} {facts.os_name} {facts.soc} localhost".lower()
    android = facts.android
    ids = (facts.machine_id, facts.serial_number, facts.boot_id, android and android.serialno)
    words = [("id", word) for word in ids if word and len(word) > 3]
    host, user = facts.hostname or "", facts.user.name or ""
    if len(host) > 1 and host.lower() not in public:
        words.append(("host", host))
    if user:
        known = user.lower() in public or shape(user) in known_words()
        words.append(("login" if known else "user", user))
    words += [
        ("group", name)
        for name in {*facts.user.groups_db, *facts.user.groups_live}
        if name != user and shape(name) not in known_words()
    ]
    return tuple(words)


def raw_parts(session: Session, sample: Seen) -> dict[str, str]:
    """Return name → text of the device; `facts` and `probe` are from the sample.

    A device that cannot give the texts has the reason instead.
    """
    probe = "\n".join(f"{key}\t{value}" for key, rows in sample.lines.items() for value in rows)
    facts = json.dumps(to_plain(sample.facts), indent=1)
    return {"facts": facts, "probe": probe, **_device_texts(session)}


def _device_texts(session: Session) -> dict[str, str]:
    try:
        result = session.run(device_script("parts"), "parts", seconds=_SECONDS)
    except TransportError as error:  # a program of the device that hangs
        session.reopen()
        return {"parts": error.message}
    except FleetError as error:  # a Windows PC has no such script
        return {"parts": error.message}
    texts: dict[str, str] = {}
    name = "before"
    for line in result.text.splitlines(keepends=True):
        if line.startswith(_HEAD):
            name = line.removeprefix(_HEAD).strip()
        else:
            texts[name] = texts.get(name, "") + line
    return {key: text.strip() + "\n" for key, text in texts.items() if text.strip()}
