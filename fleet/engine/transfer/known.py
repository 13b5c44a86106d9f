"""Where a device keeps our files, remembered: a push that finds nothing to do asks nothing else.

Only the base folder and the tools are kept, for one identity (host key or serial number); what is
on the device is asked each time. A Windows PC is asked for all of its facts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

from msgspec import Struct

from fleet.engine.session import Session
from fleet.model.errors import InputError
from fleet.model.facts import Facts, Tools
from fleet.model.home import fleet_home, private_folder, write_private
from fleet.model.plain import read_plain, to_plain


class Remembered(Struct, frozen=True):
    """What is kept of a device; `wanted` are the words of the inventory that it was found by."""

    windows: bool
    identity: str
    wanted: tuple[str, ...]
    machine: str | None
    lab: bool
    base_dir: str
    tools: Tools


def remembered(session: Session) -> Facts | None:
    """Just enough of the facts to ask for the state of a release; None for a stranger."""
    try:
        found = read_plain(Remembered, json.loads(_path(session).read_text("utf-8")), "facts", "")
    except (OSError, ValueError, InputError):
        return None
    same = (found.identity, found.wanted) == (session.identity, _wanted(session))
    if not same or found.windows:
        return None
    return Facts(
        base_dir=found.base_dir,
        tools=found.tools,
        store=True,
        machine=found.machine,
        lab=found.lab,
    )


def remember(session: Session, facts: Facts) -> None:
    """Keep them; a home that cannot be written costs a round trip, nothing else."""
    if facts.windows is not None:
        return
    record = Remembered(
        windows=False,
        identity=session.identity,
        wanted=_wanted(session),
        machine=facts.machine,
        lab=facts.lab,
        base_dir=facts.base_dir,
        tools=facts.tools,
    )
    path = _path(session)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        private_folder(path.parent)
        write_private(part, json.dumps(to_plain(record)))
        part.replace(path)


def _path(session: Session) -> Path:
    name = hashlib.sha256(f"{session.transport.describe}\n{session.host.name}".encode())
    return fleet_home() / "devices" / f"{name.hexdigest()[:24]}.json"


def _wanted(session: Session) -> tuple[str, ...]:
    return session.host.base_dir, session.host.identity or ""
