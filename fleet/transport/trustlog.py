"""Who was trusted when, and in whose place: an append-only log beside fleet's own known_hosts."""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from fleet.model.errors import InputError
from fleet.model.inventory import Host

NEW, REFLASHED, ACCEPTED = "new", "reflashed", "accept-new"


@dataclass(frozen=True)
class Trusted:
    """One line. `old` is "" for a host that was not known; `time` is UTC."""

    time: str
    host: str
    address: str
    kind: str
    old: str
    new: str
    by: str
    why: str


def log_path(host: Host) -> Path:
    """`<known_hosts>.log`."""
    return host.known_hosts.with_name(host.known_hosts.name + ".log")


def note(host: Host, *, address: str, kind: str, old: str, new: str, why: str) -> None:
    """Append a line; on disk when this returns."""
    line = Trusted(
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        host=host.name,
        address=address,
        kind=kind,
        old=old,
        new=new,
        by=f"{getpass.getuser()}@{socket.gethostname()}",
        why=why,
    )
    path = log_path(host)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(asdict(line), ensure_ascii=False) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def read(path: Path) -> list[Trusted]:
    """All lines, oldest first. Raises InputError naming the line that is damaged."""
    if not path.is_file():
        return []
    found = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            found.append(Trusted(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise InputError(
                f"{path}:{number} is damaged: {error}", hint="remove that line; keep the others"
            ) from error
    return found
