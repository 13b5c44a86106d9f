"""The transports. No other package imports paramiko or adbutils."""

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

# paramiko logs the errors that it also raises, with tracebacks. fleet's errors report them once.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def transport_for(host: Host, *, accept_new: bool = False, again: bool = False) -> Transport:
    """Return the transport that the inventory names for a host, not yet open.

    `accept_new` pins an unknown host key; a changed key is always refused. `again` means that the
    device was connected a moment ago, which changes the cause of an error.
    """
    kind = TRANSPORTS.get(host.transport)
    if kind is not None:
        # Each transport imports its own third-party packages: paramiko takes 0.2 s.
        module, _, name = kind.opener.partition(":")
        opener: Callable[..., Transport] = getattr(import_module(module), name)
        return opener(host, accept_new=accept_new, again=again)
    raise InputError(
        f"{host.name}: the transport '{host.transport}' is not supported",
        hint=f"write `transport:` in the inventory as one of: {', '.join(TRANSPORTS)}",
    )
