"""Devices that this workstation knows of: hosts of an ssh config, phones of an adb server."""

from __future__ import annotations

import socket
from pathlib import Path

import paramiko

from fleet.model.errors import InputError

ADB_PORT = 5037
ADB_SECONDS = 1.0  # the server is on loopback, or is not there
USER_CONFIG = Path("~/.ssh/config")


def config_hosts(path: Path | None = None) -> list[str]:
    """Aliases of an ssh config that stand for one host: no wildcard, no negation.

    Without `path`: the user's own file, [] when there is none. Raises InputError for a file
    that cannot be read.
    """
    source = path or USER_CONFIG.expanduser()
    if not source.is_file():
        if path is not None:
            raise InputError(f"there is no ssh config {path}", hint=f"ls {path.parent}")
        return []
    try:
        names = paramiko.SSHConfig.from_path(str(source)).get_hostnames()
    except (paramiko.SSHException, OSError, ValueError) as error:
        raise InputError(f"cannot read the ssh config {source}: {error}") from error
    return sorted(name for name in names if not set(name) & set("*?!") and name)


def adb_devices(port: int = ADB_PORT) -> list[tuple[str, str, str]]:
    """(serial, state, model) of what a running adb server knows; [] when none runs.

    The server is asked over loopback; it is never started or ended (protocol: host:devices-l).
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=ADB_SECONDS) as link:
            link.settimeout(ADB_SECONDS)
            link.sendall(b"000ehost:devices-l")
            if _read(link, 4) != b"OKAY":
                return []
            text = _read(link, int(_read(link, 4), 16)).decode("utf-8", "replace")
    except (OSError, ValueError):
        return []
    found = []
    for line in text.splitlines():
        serial, *words = line.split()
        model = next((w.partition(":")[2] for w in words if w.startswith("model:")), "")
        found.append((serial, words[0] if words else "unknown", model))
    return found


def _read(link: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = link.recv(count - len(data))
        if not chunk:
            raise OSError("the adb server closed the connection")
        data += chunk
    return data
