"""Reading the host key that a host offers, without a login, and pinning it."""

from __future__ import annotations

from dataclasses import dataclass

import paramiko

from fleet.model.errors import HostKeyError, InputError
from fleet.model.inventory import Host
from fleet.transport import trustlog
from fleet.transport.hostkeys import changed, fingerprint, pin, pinned_keys, refused, revoked
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


class _Looked(Exception):  # noqa: N818 - not an error: it ends the handshake on purpose
    def __init__(self, name: str, key: paramiko.PKey) -> None:
        super().__init__(name)
        self.name = name
        self.key = key


class _Look(paramiko.MissingHostKeyPolicy):
    """A policy that ends the handshake before any user data is sent."""

    def missing_host_key(
        self,
        client: paramiko.SSHClient,  # noqa: ARG002 - the interface of paramiko
        hostname: str,
        key: paramiko.PKey,
    ) -> None:
        raise _Looked(hostname, key)


def offered_key(host: Host, *, accept_new: bool = False) -> Offer:
    """Return the key that a host offers, through its jump hosts, of which `accept_new` pins new
    keys. No login to the host is attempted.

    Raises UnreachableError, and InputError for a host without ssh. Raises HostKeyError for a
    revoked key, for no key and for a jump host that is not trusted.
    """
    if host.transport != "ssh":
        raise InputError(
            f"fleet reaches {host.name} over {host.transport}, which has no host keys",
            hint="name hosts with `transport: ssh` only: fleet config list",
        )
    link = SshTransport(host, accept_new=accept_new)
    with mapped(host, link.describe, host.connect_timeout, opening=True):
        connection = link.connection(host.connect_timeout)
        connection.client.get_host_keys().clear()
        connection.client.set_missing_host_key_policy(_Look())
        try:
            connection.open()
        except _Looked as looked:
            return _offer(host, looked.name, looked.key)
        finally:
            link.close()
    raise HostKeyError(
        "the device sent no host key",
        device=host.name,
        hint="run on the device: sudo ssh-keygen -A",
    )


def _offer(host: Host, name: str, key: paramiko.PKey) -> Offer:
    if revoked(host, key):
        raise refused(host, key)
    known = pinned_keys(host, name)
    same = known.get(key.get_name()) or next(iter(known.values()), None)
    pinned = host.host_key or (fingerprint(same) if same else "")
    return Offer(name, key.get_name(), fingerprint(key), pinned, key)


def check_offer(host: Host, offer: Offer, *, reflashed: bool) -> None:
    """Raise an error if the offered key must not be pinned.

    Raises HostKeyError for a key other than `host_key:` of the inventory (pinning would change
    nothing), InputError for a changed key unless the board was `reflashed`.
    """
    if offer.pinned in ("", offer.fingerprint):
        return
    if host.host_key:
        raise changed(host, offer.fingerprint, host.host_key)
    if not reflashed:
        raise InputError(
            f"the host key changed: you trusted {offer.pinned}, but the device offers "
            f"{offer.fingerprint}",
            device=host.name,
            hint=f"only if you re-flashed the board: fleet trust {host.name} --reflashed",
        )


def trust_host(host: Host, offer: Offer) -> None:
    """Pin the offered key in fleet's own known_hosts, and remove older keys of this host.

    The old and the new fingerprint are written to the log (trustlog.py) before the key is pinned,
    so that every trusted key is on record. Raises InputError if the log or the file cannot be
    written.
    """
    why = trustlog.REFLASHED if offer.pinned else trustlog.NEW
    trustlog.note(
        host, address=offer.name, kind=offer.kind, old=offer.pinned, new=offer.fingerprint, why=why
    )
    pin(host.known_hosts, offer.name, offer.key, replace=True)
