"""A connection without jump hosts and ssh config: what fabric would make of it, without fabric.

fabric and invoke take 70 ms to import, a fifth of the start of a short command, and 2 ms a board.
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import paramiko

from fleet.model.inventory import Host

DEFAULT_PORT = 22
_CONFIGS = ("~/.ssh/config", "/etc/ssh/ssh_config")  # those that fabric reads
_MATCH = re.compile(r"(?im)^\s*match\b")
_HEEDED = {
    "connecttimeout",
    "forwardagent",
    "identityfile",
    "port",
    "proxycommand",
    "proxyjump",
    "user",
}


if TYPE_CHECKING:
    from fabric import Connection

AnyConnection: TypeAlias = "Connection | Direct"


class Direct:
    """The part of fabric's Connection that is used here."""

    gateway: None = None

    def __init__(self, host: Host, limit: float, options: dict[str, Any]) -> None:
        self.host = host.address or host.name
        self.user = host.user or getpass.getuser()
        self.port = host.port or DEFAULT_PORT
        self.client = paramiko.SSHClient()
        self.transport: Any = None  # paramiko's, once it is open
        self.connect_kwargs = options
        self._limit = limit

    def open(self) -> None:
        """Connect and log in. Raises what paramiko raises."""
        self.client.connect(
            self.host, self.port, self.user, timeout=self._limit, **self.connect_kwargs
        )
        self.transport = self.client.get_transport()


def hops_of(connection: AnyConnection | str | None) -> Iterator[AnyConnection]:
    """A connection, its jump host, that one's, and so on; no ProxyCommand."""
    while connection is not None and not isinstance(connection, str):
        yield connection
        connection = connection.gateway


def credentials(host: Host) -> dict[str, Any]:
    """What the inventory has to log in with, in paramiko's words. Raises InputError."""
    found: dict[str, Any] = {}
    if host.identity_files:
        found["key_filename"] = [str(path) for path in host.identity_files]
    if host.key_passphrase is not None:
        found["passphrase"] = host.key_passphrase.get().reveal()
    if host.password is not None:
        found["password"] = host.password.get().reveal()
    return found


def is_direct(host: Host) -> bool:
    """Whether nothing but the inventory says how this host is reached."""
    name = host.address or host.name
    if host.proxy_jump or "@" in name or name.count(":") == 1:
        return False
    if host.ssh_config:
        return _is_silent(host.ssh_config, name, must=True)
    return all(_is_silent(Path(path).expanduser(), name) for path in _CONFIGS)


def _is_silent(path: Path, name: str, *, must: bool = False) -> bool:
    """Whether an ssh config says nothing of a host that is heeded; False where it is odd, or
    not there and `must` be.
    """
    try:
        config = _config(path.read_text("utf-8"))
        found = {} if config is None else config.lookup(name)
    except FileNotFoundError:
        return not must
    except Exception:  # noqa: BLE001 - fabric meets it again, and says what it is
        return False
    return config is not None and not _HEEDED & set(found) and found.get("hostname", name) == name


@lru_cache(maxsize=8)
def _config(text: str) -> paramiko.SSHConfig | None:
    """None for one whose `Match` may run a command to know."""
    return None if _MATCH.search(text) else paramiko.SSHConfig.from_text(text)
