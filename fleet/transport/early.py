"""Connections that open in the background while the command's modules are still loading."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fleet.transport.base import Transport

if TYPE_CHECKING:
    from fleet.model.inventory import Host

_SWITCH_SECONDS = 0.0001
MOST = 4  # more connections would only take processor time from the loading


def import_ssh() -> None:
    """Import paramiko before threads start, which would wait for the import one by one."""
    import paramiko  # noqa: F401, PLC0415


@contextlib.contextmanager
def begun(
    hosts: Sequence[Host], parallel: int, *, bulk: bool = False
) -> Iterator[Mapping[str, Transport]]:
    """Yield transports of a few hosts by name: over ssh, with known keys and without a secret.

    With `bulk` their second carriers are opened too. All are closed at the end of the context. Call
    it after the import of paramiko, when the command line is known to be valid.
    """
    transports: dict[str, Transport] = {}
    ours = [host for host in hosts if host.transport == "ssh"]
    try:
        for host in ours if len(hosts) <= min(parallel, MOST) else ():
            if host.password or host.key_passphrase:
                continue
            from fleet.transport.ssh import SshTransport  # noqa: PLC0415 - paramiko

            link = SshTransport(host)
            transports[host.name] = link
            link.begin(bulk=bulk)
        yield transports
    finally:
        for transport in transports.values():
            transport.close()


@contextlib.contextmanager
def sharing() -> Iterator[None]:
    """Switch threads sooner than after 5 ms while modules are loaded, to speed up a handshake."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
