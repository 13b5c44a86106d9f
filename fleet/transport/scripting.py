"""Connections of fabric and devices of adbutils, opened by fleet, for the user's scripts.

fabric's own connection code is not used. fleet resolves the inventory and the ssh config hop by
hop, checks the host key before it sends the user name, and maps every error.
"""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence
from typing import Any

import adbutils
import fabric
import paramiko

from fleet.model.deadline import Deadline
from fleet.model.errors import InputError
from fleet.model.inventory import TRANSPORTS, Host
from fleet.transport.adb import AdbTransport
from fleet.transport.connection import DEFAULT_PORT
from fleet.transport.ssh import SshTransport


class FleetConnection(fabric.Connection):  # type: ignore[misc] # fabric has no types
    """A `fabric.Connection` to a host of the inventory.

    `run`, `sudo`, `put`, `get`, `forward_local` and the rest are those of fabric. `open` connects
    like every fleet command: with the inventory's host keys, jump hosts, keys and passwords. Raises
    a FleetError if the device cannot be reached; errors of commands are those of fabric.
    """

    inventory_host: Host
    link: SshTransport

    def __init__(self, host: Host) -> None:
        """Prepare a connection to `host`. The first command opens it."""
        nothing = paramiko.SSHConfig()  # fleet reads the ssh config itself
        super().__init__(
            host.name,
            user=host.user or getpass.getuser(),
            port=host.port or DEFAULT_PORT,
            config=fabric.Config(ssh_config=nothing),
            connect_timeout=host.connect_timeout,
        )
        self._set(inventory_host=host, link=SshTransport(host))

    def open(self) -> None:
        """Connect if the connection is not open yet. Raises a FleetError of the transport."""
        if self.is_connected:
            return
        self.link.close()
        self.link.open(Deadline(self.inventory_host.connect_timeout))
        self.client = self.link.client
        self.transport = self.client.get_transport()

    def close(self) -> None:
        """Close the connection and the connections to its jump hosts."""
        super().close()
        self.link.close()

    def sudo(self, command: str, **options: Any) -> Any:  # noqa: ANN401 - as fabric has it
        """Run a command as root, with `become_password` of the inventory unless one is given.

        Standard input goes to the command only if it is a terminal: the end of a file or of
        /dev/null would close the channel before the password is sent.
        """
        if sys.stdin is None or not sys.stdin.isatty():
            options.setdefault("in_stream", False)
        secret = self.inventory_host.become_password
        if secret is not None and "password" not in options:
            options["password"] = secret.get().reveal()
        return super().sudo(command, **options)


def _function_for(host: Host) -> str:
    """Return the call that gives a script its connection to a host, or ""."""
    name = TRANSPORTS[host.transport].scripting
    return f'fleet.{name}("{host.name}")' if name else ""


def fabric_connection(host: Host) -> FleetConnection:
    """Return a connection to a host that is reached over ssh. Raises InputError for other hosts."""
    if host.transport != "ssh":
        raise InputError(
            f"{host.name} is reached over {host.transport}, and fabric speaks ssh only",
            hint=_function_for(host),
        )
    return FleetConnection(host)


def fabric_group(hosts: Sequence[Host]) -> fabric.ThreadingGroup:
    """Return a group that runs each call on all hosts at once. Raises InputError."""
    return fabric.ThreadingGroup.from_connections([fabric_connection(host) for host in hosts])


def adbutils_device(host: Host) -> adbutils.AdbDevice:
    """Return a phone as an adbutils device, after checking that it answers.

    A target HOST:PORT that the server does not have is connected first. Raises InputError for a
    host that is not reached over adb, and a FleetError for a phone that does not answer.
    """
    if not host.phone:
        raise InputError(
            f"{host.name} is reached over {host.transport}, not over adb",
            hint=_function_for(host),
        )
    link = AdbTransport(host)
    try:
        link.open(Deadline(host.connect_timeout))
        (where, port), serial = link.server, link.serial
    finally:
        link.close()
    return adbutils.AdbClient(host=where, port=port).device(serial=serial)
