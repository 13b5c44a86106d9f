"""Transports: the only importers of paramiko and adbutils."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from fleet.model.errors import InputError
from fleet.model.inventory import TRANSPORTS
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
    kind = TRANSPORTS.get(host.transport)
    if kind is not None:
        # Each brings its own third parties: paramiko takes 0.2 s.
        module, _, name = kind.opener.partition(":")
        opener: Callable[..., Transport] = getattr(import_module(module), name)
        return opener(host, accept_new=accept_new, again=again)
    raise InputError(
        f"{host.name}: the transport '{host.transport}' is not supported",
        hint=f"write `transport:` in the inventory as one of: {', '.join(TRANSPORTS)}",
    )
