"""An append-only log next to fleet's own known_hosts: when each key was trusted and what it
replaced.
"""

from __future__ import annotations

import getpass
import json
import os
import shlex
import socket
from io import FileIO
from pathlib import Path

from msgspec import Struct

from fleet.model.deadline import utc_text
from fleet.model.errors import InputError, reason
from fleet.model.files import file_errors
from fleet.model.inventory import Host
from fleet.model.plain import read_plain, to_plain

NEW, REFLASHED, ACCEPTED = "new", "reflashed", "accept-new"


class Trusted(Struct, frozen=True):
    """A line of the log. `old` is "" for a host that was not known; `time` is UTC."""

    time: str
    host: str
    address: str
    kind: str
    old: str
    new: str
    by: str
    why: str


def log_path(host: Host) -> Path:
    """Return `<known_hosts>.log`."""
    return host.known_hosts.with_name(host.known_hosts.name + ".log")


def note(host: Host, *, address: str, kind: str, old: str, new: str, why: str) -> None:
    """Append a line and sync it to the disk. Raises InputError if it cannot be written."""
    line = Trusted(
        time=utc_text(),
        host=host.name,
        address=address,
        kind=kind,
        old=old,
        new=new,
        by=f"{_user()}@{socket.gethostname()}",
        why=why,
    )
    path = log_path(host)
    data = json.dumps(to_plain(line), ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    with file_errors(path, "write", hint=f"ls -ld {path.parent}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+", buffering=0) as stream:
            stream.write((b"\n" if _torn(stream) else b"") + data)
            os.fsync(stream.fileno())


def _torn(stream: FileIO) -> bool:
    """Return True if the last line is incomplete, because its writer was interrupted."""
    if stream.seek(0, os.SEEK_END) == 0:
        return False
    stream.seek(-1, os.SEEK_END)
    return stream.read(1) != b"\n"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose uid has no name
        return f"uid {os.getuid()}"


def read(path: Path) -> list[Trusted]:
    """Return all lines, oldest first. Raises InputError that names a damaged line."""
    if not path.is_file():
        return []
    with file_errors(path):
        lines = path.read_bytes().split(b"\n")
    entries = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entries.append(read_plain(Trusted, json.loads(line), "line", ""))
        except (ValueError, InputError) as error:
            raise InputError(
                f"line {number} of {path}, the log of trusted host keys, is damaged: "
                f"{reason(error)}",
                hint="remove that line, and keep the others: "
                f"sed -i {number}d {shlex.quote(str(path))}",
            ) from error
    return entries
