"""Devices that this workstation knows of: hosts of an ssh config, phones of an adb server."""

from __future__ import annotations

import glob
import os
import re
import shlex
import socket
from pathlib import Path

import paramiko

from fleet.model.deadline import Deadline
from fleet.model.errors import InputError

ADB_PORT = 5037
ADB_SECONDS = 1.0  # the server is on loopback, or is not there
USER_CONFIG = Path("~/.ssh/config")
_INCLUDE = re.compile(r"(?im)^[ \t]*include[ \t]*[ \t=][ \t]*(.+)$")


def config_hosts(path: Path | None = None) -> list[tuple[str, Path]]:
    """(alias, file) of an ssh config for each alias that stands for one host.

    No wildcard, no negation. `Include` is followed as ssh_config(5) says; the file is the one
    that holds the alias. Without `path`: the user's own file, [] when there is none. Raises
    InputError for a file that cannot be read.
    """
    source = path or USER_CONFIG.expanduser()
    if not source.is_file():
        if path is not None:
            raise InputError(f"there is no ssh config {path}", hint=f"ls {path.parent}")
        return []
    found: dict[str, Path] = {}
    for file in _with_included(source):
        try:
            names = paramiko.SSHConfig.from_path(str(file)).get_hostnames()
        except (paramiko.SSHException, OSError, ValueError) as error:
            raise _unreadable(file, error) from error
        for name in names:
            if name and not set(name) & set("*?!"):
                found.setdefault(name, file)
    return sorted(found.items())


def _with_included(source: Path) -> list[Path]:
    """The file and all that it includes, each once: a file may include itself."""
    files, waiting = [], [source]
    while waiting:
        file = waiting.pop(0)
        if file in files:
            continue
        files.append(file)
        try:
            text = file.read_text("utf-8")
            words = [shlex.split(one) for one in _INCLUDE.findall(text)]
        except (OSError, ValueError) as error:
            raise _unreadable(file, error) from error
        for pattern in (one for line in words for one in line):
            # Relative ones start from ~/.ssh, whichever file they stand in: ssh_config(5).
            known = os.path.expanduser(pattern)  # noqa: PTH111 - ~nobody stays as it is
            place = str(USER_CONFIG.expanduser().parent / known)
            names = glob.glob(place)  # noqa: PTH207 - hidden files stay out, as in glob(3)
            waiting += sorted(one for one in map(Path, names) if one.is_file())
    return files


def _unreadable(file: Path, error: Exception) -> InputError:
    return InputError(
        f"cannot read the ssh config {file}: {error}",
        hint="give addresses instead: fleet init FOLDER [user@]host[:port] ...",
    )


def adb_devices(port: int = ADB_PORT) -> list[tuple[str, str, str]]:
    """(serial, state, model) of what a running adb server knows; [] when none runs.

    The server is asked over loopback; it is never started or ended (protocol: host:devices-l).
    """
    deadline = Deadline(ADB_SECONDS)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=ADB_SECONDS) as link:
            link.sendall(b"000ehost:devices-l")
            if _read(link, 4, deadline) != b"OKAY":
                return []
            count = int(_read(link, 4, deadline), 16)
            text = _read(link, count, deadline).decode("utf-8", "replace")
    except (OSError, ValueError):
        return []
    found = []
    for line in filter(str.strip, text.splitlines()):
        serial, *words = line.split()
        model = next((w.partition(":")[2] for w in words if w.startswith("model:")), "")
        found.append((serial, words[0] if words else "unknown", model))
    return found


def _read(link: socket.socket, count: int, deadline: Deadline) -> bytes:
    data = b""
    while len(data) < count:
        if deadline.expired:
            raise TimeoutError("the adb server is too slow")
        link.settimeout(deadline.remaining or ADB_SECONDS)
        chunk = link.recv(count - len(data))
        if not chunk:
            raise OSError("the adb server closed the connection")
        data += chunk
    return data
