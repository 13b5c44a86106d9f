"""The trusted keys of a host: pins, fleet's own known_hosts, then the user's known_hosts.

Order: `host_key:` of the inventory, fleet's own file, the user's ~/.ssh/known_hosts. The user's
file is read and never written. An unknown key is refused unless it may be accepted as new. A
changed or revoked key is always refused.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

from fleet.model.errors import HostKeyError
from fleet.model.files import file_errors
from fleet.model.inventory import Host
from fleet.transport import trustlog

USER_KNOWN_HOSTS = Path("~/.ssh/known_hosts")


def fingerprint(key: paramiko.PKey) -> str:
    """Return the fingerprint `SHA256:...` as ssh-keygen -l prints it."""
    digest = hashlib.sha256(key.asbytes()).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def entry_name(hostname: str, port: int) -> str:
    """Return the name of a host in known_hosts: `host`, or `[host]:port` for ports other
    than 22.
    """
    return hostname if port == 22 else f"[{hostname}]:{port}"


def _load(path: Path) -> paramiko.HostKeys:
    """Return the plain lines of a known_hosts file. The file is parsed again only after a
    change.
    """
    if not path.is_file():
        return paramiko.HostKeys()
    with file_errors(path):
        now = path.stat()
    return _loaded(path, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)


@lru_cache(maxsize=8)
def _loaded(path: Path, *_state: int) -> paramiko.HostKeys:
    """Parse a known_hosts file, without markers and lines of unknown kinds."""
    keys = paramiko.HostKeys()
    for line in map(str.strip, _lines(path)):
        if not line or line.startswith(("#", "@")):
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
    """Return the keys (type → key) with which `name` may be connected to.

    A revoked key is left out, so that Policy sees it as unknown and refuses it.
    """
    pinned = pinned_keys(host, name)
    return {kind: key for kind, key in pinned.items() if not revoked(host, key)}


def pinned_keys(host: Host, name: str) -> dict[str, paramiko.PKey]:
    """Return the keys (type → key) on file for `name`, including revoked ones. Fleet's file
    wins.
    """
    for path in _files(host):
        keys = _load(path).lookup(name)
        if keys:
            return dict(keys.items())
    return {}


def _files(host: Host) -> tuple[Path, Path]:
    return host.known_hosts, USER_KNOWN_HOSTS.expanduser()


def revoked(host: Host, key: paramiko.PKey) -> bool:
    """Return True if a `@revoked` line of fleet's or the user's file contains this key."""
    blob = key.get_base64()
    lines = [line for path in _files(host) if path.is_file() for line in _lines(path)]
    return any(words[:1] == ["@revoked"] and blob in words for words in map(str.split, lines))


def refused(host: Host, key: paramiko.PKey) -> HostKeyError:
    """Return the error for a revoked key."""
    return HostKeyError(
        f"the host key {fingerprint(key)} is marked @revoked in known_hosts",
        device=host.name,
        hint="do not connect; ask the administrator of the device for the new key",
    )


def pin(path: Path, name: str, key: paramiko.PKey, *, replace: bool = False) -> None:
    """Write a key into fleet's own known_hosts. Other lines stay unchanged.

    `replace` first removes `name` from the lines that have it, including hashed ones. The file is
    replaced atomically under a lock, so that many boards can be pinned at once. Raises InputError
    if it cannot be written.
    """
    with locked(path):
        _write(path.resolve(), name, key, replace=replace)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a known_hosts file against other threads and processes of this
    workstation.
    """
    path = path.resolve()
    with contextlib.ExitStack() as stack:
        with file_errors(path, "write", hint=f"ls -ld {path.parent}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((path.parent / f".{path.name}.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(path: Path, name: str, key: paramiko.PKey, *, replace: bool) -> None:
    line = f"{name} {key.get_name()} {key.get_base64()}"
    with file_errors(path, "write", hint=f"ls -ld {path.parent}"):
        lines = _lines(path) if path.exists() else []
        if replace:
            lines = [left for line in lines if (left := _without(line, name))]
        if line not in lines:
            lines.append(line)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        part.write_text("\n".join(lines) + "\n", "utf-8", "surrogateescape")
        if path.exists():
            shutil.copymode(path, part)
        part.replace(path)


def _lines(path: Path) -> list[str]:
    with file_errors(path):
        return path.read_text("utf-8", "surrogateescape").splitlines()


def _without(line: str, name: str) -> str:
    """Return a line of known_hosts without `name`, "" if it named nothing else."""
    names, *rest = line.split(maxsplit=1)[:2] or [""]
    left = [listed for listed in names.split(",") if not _is(listed, name)]
    return line if left == names.split(",") else " ".join([",".join(left), *rest]) if left else ""


def _is(listed: str, name: str) -> bool:
    if not listed.startswith("|1|"):
        return listed == name
    try:
        return paramiko.HostKeys.hash_host(name, listed) == listed
    except (ValueError, AssertionError):  # not a valid hash
        return False


class Policy(paramiko.MissingHostKeyPolicy):
    """The decision on an unknown key. paramiko calls it before it sends the user name."""

    def __init__(self, host: Host, *, accept_new: bool, jump: str = "") -> None:
        """Store the policy. `accept_new` pins a key of a host that has none yet.

        `jump` is the manual login command if the key is that of a jump host.
        """
        self._host = host
        self._jump = jump
        self._accept_new = accept_new

    def missing_host_key(
        self,
        client: paramiko.SSHClient,  # noqa: ARG002 - the interface of paramiko
        hostname: str,
        key: paramiko.PKey,
    ) -> None:
        """Accept a pinned key, and pin a new one with `accept_new`. Else raise HostKeyError."""
        offered = fingerprint(key)
        if revoked(self._host, key):
            raise refused(self._host, key)
        if self._host.host_key:
            if offered != self._host.host_key:
                raise changed(self._host, offered, self._host.host_key)
            return
        if self._as_pinned(hostname, key):
            # pinned under another name of the same board while this connection was being opened
            return
        if not self._accept_new:
            raise self._unknown(hostname, key)
        with locked(self._host.known_hosts):
            if self._as_pinned(hostname, key):
                return
            trustlog.note(
                self._host,
                address=hostname,
                kind=key.get_name(),
                old="",
                new=offered,
                why=trustlog.ACCEPTED,
            )
            _write(self._host.known_hosts.resolve(), hostname, key, replace=False)

    def _as_pinned(self, hostname: str, key: paramiko.PKey) -> bool:
        """Return True if the key is on file by now, False if none is. Raises for another key."""
        pinned = pinned_keys(self._host, hostname)
        if key in pinned.values():
            return True
        for other in pinned.values():
            raise changed(self._host, fingerprint(key), fingerprint(other))
        return False

    def _unknown(self, hostname: str, key: paramiko.PKey) -> HostKeyError:
        cure = (
            f"compare the fingerprint with that of the device, then: fleet trust {self._host.name}"
        )
        if self._jump:
            cure = f"log in to the jump host once and accept its key: {self._jump}"
            hostname = f"the jump host {hostname}"
        return HostKeyError(
            f"the host key of {hostname} is not trusted yet: {key.get_name()} {fingerprint(key)}",
            device=self._host.name,
            hint=cure,
        )


def changed(host: Host, offered: str, pinned: str) -> HostKeyError:
    """Return the error for a key other than the pinned one, with both fingerprints."""
    cure = f"if you re-flashed the board: fleet trust {host.name} --reflashed"
    if host.host_key:
        cure = f"if you re-flashed the board: correct `host_key:` of {host.name} in the inventory"
    return HostKeyError(
        f"the host key has CHANGED: trusted {pinned}, offered {offered}; the board was re-flashed, "
        "or another board has this address, or somebody intercepts the connection",
        device=host.name,
        hint=cure,
    )
