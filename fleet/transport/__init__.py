"""Transports: the only importers of paramiko and adbutils."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fleet.model.errors import InputError
from fleet.transport.base import Identity, Traffic, Transport

if TYPE_CHECKING:
    from fleet.model.inventory import Host

__all__ = ["Identity", "Traffic", "Transport", "transport_for"]

# paramiko logs what it also raises, tracebacks and all; our errors say it once.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def transport_for(host: Host, *, accept_new: bool = False, again: bool = False) -> Transport:
    """The transport that the inventory names for a host, not yet open.

    `accept_new` pins a host key that was never seen; a changed key is refused always. `again`:
    the device was there a moment ago, which is another cause than one that never was.
    """
    # Each brings its own third parties: paramiko takes 0.2 s.
    if host.transport == "ssh":
        from fleet.transport.ssh import SshTransport  # noqa: PLC0415

        return SshTransport(host, accept_new=accept_new)
    if host.transport == "local":
        from fleet.transport.local import LocalTransport  # noqa: PLC0415

        return LocalTransport()
    if host.transport == "adb":
        from fleet.transport.adb import AdbTransport  # noqa: PLC0415

        return AdbTransport(host, again=again)
    raise InputError(
        f"{host.name}: the transport '{host.transport}' is not supported",
        hint="write `transport: ssh`, adb or local in the inventory",
    )
