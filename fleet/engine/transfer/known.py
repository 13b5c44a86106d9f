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

from fleet.engine.session import Session
from fleet.model.facts import Facts, Tools
from fleet.model.home import fleet_home, private_folder, write_private

_FIELDS = (
    "python3",
    "python3_whole",
    "sha256",
    "dd_fullblock",
    "find_printf",
    "sync_file",
    "tar",
    "cpio",
    "gzip",
)


def remembered(session: Session) -> Facts | None:
    """Just enough of the facts to ask for the state of a release; None for a stranger."""
    try:
        found = json.loads(_path(session).read_text("utf-8"))
        tools = {name: found["tools"][name] for name in _FIELDS}
        base = found["base_dir"]
        tools["sha256"] = tuple(tools["sha256"])
        same = (found["identity"], found["wanted"]) == (session.identity, _wanted(session))
        known = same and found["windows"] is False
        machine, lab = found["machine"], bool(found["lab"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not known:
        return None
    return Facts(base_dir=base, tools=Tools(**tools), store=True, machine=machine, lab=lab)


def remember(session: Session, facts: Facts) -> None:
    """Keep them; a home that cannot be written costs a round trip, nothing else."""
    if facts.windows is not None:
        return
    record = {
        "windows": False,
        "identity": session.identity,
        "wanted": _wanted(session),
        "machine": facts.machine,
        "lab": facts.lab,
        "base_dir": facts.base_dir,
        "tools": {name: getattr(facts.tools, name) for name in _FIELDS},
    }
    path = _path(session)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        private_folder(path.parent)
        write_private(part, json.dumps(record))
        part.replace(path)


def _path(session: Session) -> Path:
    name = hashlib.sha256(f"{session.transport.describe}\n{session.host.name}".encode())
    return fleet_home() / "devices" / f"{name.hexdigest()[:24]}.json"


def _wanted(session: Session) -> list[str]:
    return [session.host.base_dir, session.host.identity or ""]
