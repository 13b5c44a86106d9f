"""Who a host is allowed to be: pins, fleet's own known_hosts, the user's as a second source.

Order: `host_key:` of the inventory, fleet's own file, the user's ~/.ssh/known_hosts. The
user's file is read and never written. An unknown key is refused unless it may be accepted
as new; a changed or revoked key is refused always.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

from fleet.model.errors import HostKeyError, InputError
from fleet.model.inventory import Host
from fleet.transport import trustlog

USER_KNOWN_HOSTS = Path("~/.ssh/known_hosts")


def fingerprint(key: paramiko.PKey) -> str:
    """`SHA256:...` as ssh-keygen -l prints it."""
    digest = hashlib.sha256(key.asbytes()).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def entry_name(hostname: str, port: int) -> str:
    """The name of a host in known_hosts: `host`, or `[host]:port` off port 22."""
    return hostname if port == 22 else f"[{hostname}]:{port}"


def _load(path: Path) -> paramiko.HostKeys:
    """The plain lines of a known_hosts file; markers and lines of unknown kinds are left out."""
    keys = paramiko.HostKeys()
    if not path.is_file():
        return keys
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error}") from error
    for line in lines:
        if not line.strip() or line.startswith(("#", "@")):
            continue
        try:
            entry = HostKeyEntry.from_line(line)
        except (InvalidHostKey, paramiko.SSHException, ValueError):
            continue
        if entry is None or entry.key is None:
            continue
        for name in entry.hostnames or ():
            keys.add(name, entry.key.get_name(), entry.key)
    return keys


def known_keys(host: Host, name: str) -> dict[str, paramiko.PKey]:
    """Key type → key that is trusted for `name`. Fleet's own file wins over the user's."""
    for path in (host.known_hosts, USER_KNOWN_HOSTS.expanduser()):
        found = _load(path).lookup(name)
        if found:
            return dict(found.items())
    return {}


def _revoked(key: paramiko.PKey) -> bool:
    path = USER_KNOWN_HOSTS.expanduser()
    if not path.is_file():
        return False
    blob = key.get_base64()
    lines = path.read_text("utf-8", "replace").splitlines()
    return any(line.startswith("@revoked") and blob in line.split() for line in lines)


def pin(path: Path, name: str, key: paramiko.PKey, *, replace: bool = False) -> None:
    """Write a key into fleet's own known_hosts; other lines stay as they are.

    `replace` first removes the lines of `name`. The file is replaced as a whole, under a
    lock, so that many boards can be pinned at once.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        if replace:
            lines = [line for line in lines if name not in line.split(" ", 1)[0].split(",")]
        line = f"{name} {key.get_name()} {key.get_base64()}"
        if line not in lines:
            lines.append(line)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        part.write_text("\n".join(lines) + "\n", "utf-8")
        part.replace(path)


class Policy(paramiko.MissingHostKeyPolicy):
    """Decides on a key for which nothing is known yet; called before the user is sent."""

    def __init__(self, host: Host, *, accept_new: bool) -> None:
        self._host = host
        self._accept_new = accept_new

    def missing_host_key(
        self,
        client: paramiko.SSHClient,  # noqa: ARG002 - the interface of paramiko
        hostname: str,
        key: paramiko.PKey,
    ) -> None:
        """Accept, pin, or raise HostKeyError."""
        seen = fingerprint(key)
        if _revoked(key):
            raise HostKeyError(
                f"the host key {seen} is marked @revoked in your known_hosts",
                device=self._host.name,
                hint="do not connect; ask who runs this device",
            )
        if self._host.host_key:
            if seen != self._host.host_key:
                raise changed(self._host, seen, self._host.host_key)
            return
        if not self._accept_new:
            raise HostKeyError(
                f"the host key of {hostname} is not known: {key.get_name()} {seen}",
                device=self._host.name,
                hint=f"compare it with the device, then: fleet trust {self._host.name}",
            )
        pin(self._host.known_hosts, hostname, key)
        trustlog.note(
            self._host,
            address=hostname,
            kind=key.get_name(),
            old="",
            new=seen,
            why=trustlog.ACCEPTED,
        )


def changed(host: Host, seen: str, pinned: str) -> HostKeyError:
    """The error for a key that is not the pinned one; both fingerprints are in it."""
    return HostKeyError(
        f"the host key has CHANGED: pinned {pinned}, offered {seen}; "
        "a re-flashed board, another board at this address, or someone between",
        device=host.name,
        hint=f"if you re-flashed it: fleet trust {host.name} --reflashed",
    )
