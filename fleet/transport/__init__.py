"""Transports: the only importers of paramiko, fabric and adbutils."""

from __future__ import annotations

import logging

from fleet.model.errors import InputError
from fleet.model.inventory import Host
from fleet.transport.base import Identity, Traffic, Transport
from fleet.transport.local import LocalTransport
from fleet.transport.ssh import SshTransport

__all__ = ["Identity", "Traffic", "Transport", "transport_for"]

# paramiko logs what it also raises, tracebacks and all; our errors say it once.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def transport_for(host: Host, *, accept_new: bool = False) -> Transport:
    """The transport that the inventory names for a host, not yet open.

    `accept_new` pins a host key that was never seen; a changed key is refused always.
    """
    if host.transport == "ssh":
        return SshTransport(host, accept_new=accept_new)
    if host.transport == "local":
        return LocalTransport()
    if host.transport == "adb":
        # 0.17 s for adbutils and what it brings along: only where a phone is in the inventory.
        from fleet.transport.adb import AdbTransport  # noqa: PLC0415

        return AdbTransport(host)
    raise InputError(
        f"{host.name}: transport '{host.transport}' is not supported yet",
        hint="use ssh, adb or local",
    )
