"""Looking at the key that a host offers, without logging in, and pinning it."""

from __future__ import annotations

from dataclasses import dataclass

import paramiko

from fleet.model.errors import HostKeyError, InputError
from fleet.model.inventory import Host
from fleet.transport import trustlog
from fleet.transport.hostkeys import fingerprint, known_keys, pin
from fleet.transport.ssh import SshTransport
from fleet.transport.ssh_errors import mapped


@dataclass(frozen=True)
class Offer:
    """A host key as offered. `pinned` is the fingerprint that is trusted so far, or ""."""

    name: str
    kind: str
    fingerprint: str
    pinned: str
    key: paramiko.PKey


class _Looked(Exception):  # noqa: N818 - not an error: the handshake is ended on purpose
    def __init__(self, name: str, key: paramiko.PKey) -> None:
        super().__init__(name)
        self.name = name
        self.key = key


class _Look(paramiko.MissingHostKeyPolicy):
    """Ends the handshake before anything of the user is sent."""

    def missing_host_key(
        self,
        client: paramiko.SSHClient,  # noqa: ARG002 - the interface of paramiko
        hostname: str,
        key: paramiko.PKey,
    ) -> None:
        raise _Looked(hostname, key)


def offered_key(host: Host) -> Offer:
    """The key of a host, through its jump hosts. No login is tried.

    Raises UnreachableError, or HostKeyError for a jump host that is not trusted.
    """
    if host.transport != "ssh":
        raise InputError(f"{host.name} is not reached over ssh: there is no key to trust")
    link = SshTransport(host)
    with mapped(host, link.describe, host.connect_timeout):
        connection = link.connection(host.connect_timeout)
        connection.client.get_host_keys().clear()
        connection.client.set_missing_host_key_policy(_Look())
        try:
            connection.open()
        except _Looked as looked:
            known = known_keys(host, looked.name)
            same = known.get(looked.key.get_name()) or next(iter(known.values()), None)
            return Offer(
                looked.name,
                looked.key.get_name(),
                fingerprint(looked.key),
                fingerprint(same) if same else "",
                looked.key,
            )
        finally:
            link.close()
    raise HostKeyError("the host offered no key", device=host.name)


def trust_host(host: Host, offer: Offer) -> None:
    """Pin the offered key in fleet's own known_hosts; older keys of this host go.

    Old and new fingerprint stand in the log beside the file (trustlog.py).
    """
    pin(host.known_hosts, offer.name, offer.key, replace=True)
    why = trustlog.REFLASHED if offer.pinned else trustlog.NEW
    trustlog.note(
        host,
        address=offer.name,
        kind=offer.kind,
        old=offer.pinned,
        new=offer.fingerprint,
        why=why,
    )
