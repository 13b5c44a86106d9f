"""Connections that are being opened while what uses them is still being loaded."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fleet.transport.base import Transport

if TYPE_CHECKING:
    from fleet.model.inventory import Host

_SWITCH_SECONDS = 0.0001
MOST = 4  # of more hosts the first ones would only take the processor from the loading


def import_ssh() -> None:
    """Import paramiko before threads are started, which would wait for it one after the other."""
    import paramiko  # noqa: F401, PLC0415


@contextlib.contextmanager
def begun(
    hosts: Sequence[Host], parallel: int, *, bulk: bool = False
) -> Iterator[Mapping[str, Transport]]:
    """The transports of few hosts, by name: over ssh, with known keys and without a secret.

    With `bulk` their second carrier is begun too. At the end of the context all are closed.
    To be called when paramiko has been imported, and nothing about the command can be wrong.
    """
    found: dict[str, Transport] = {}
    ours = [host for host in hosts if host.transport == "ssh"]
    try:
        for host in ours if len(hosts) <= min(parallel, MOST) else ():
            if host.password or host.key_passphrase:
                continue
            from fleet.transport.ssh import SshTransport  # noqa: PLC0415 - paramiko

            link = SshTransport(host)
            found[host.name] = link
            link.begin(bulk=bulk)
        yield found
    finally:
        for transport in found.values():
            transport.close()


@contextlib.contextmanager
def sharing() -> Iterator[None]:
    """Inside, who loads modules gives way to a handshake sooner than after 5 ms a message."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
