"""The way from one board to another on the same network, with no secret on either of them.

The workstation connects to the source with an agent of its own handed on (fleet/transport/
agent.py); the source's ssh client logs in to the target with it and knows one host key: the
one that the workstation's own connection to the target saw.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
from dataclasses import dataclass
from typing import Self, Unpack

from fleet.model.command import Command, Result
from fleet.model.deadline import Deadline
from fleet.model.errors import UnreachableError
from fleet.model.inventory import Host
from fleet.transport.agent import Agent, can_bind, lacking, not_lent
from fleet.transport.base import Streams, Traffic, Transport
from fleet.transport.connection import DEFAULT_PORT
from fleet.transport.ssh import SshTransport
from fleet.transport.sshclient import Hop, SshClient

_MARGIN_SECONDS = 10.0  # for a board that is slow to start a program


@dataclass(frozen=True)
class Peer:
    """A board as its neighbours need to know it. `address` and `port` are those they use."""

    name: str
    hops: tuple[Hop, ...]
    address: str
    port: int
    seconds: float

    @property
    def user(self) -> str:
        """Who logs in there."""
        return self.hops[-1].user

    @property
    def key(self) -> str:
        """The host key that the workstation saw: its type and base64."""
        return self.hops[-1].known[0]


def peer_of(transport: Transport, host: Host) -> Peer:
    """The board of an open connection. Raises UnreachableError that says why it is no peer.

    The label `lan_address` (HOST or HOST:PORT) is what its neighbours connect to, where that
    is not what the workstation does.
    """
    if not isinstance(transport, SshTransport):
        raise UnreachableError(f"the device is connected over {transport.name}, not ssh")
    if why := lacking():
        raise UnreachableError(why)
    if not transport.second:
        raise UnreachableError("the login of the device needs a password or passphrase")
    if not can_bind(transport.banner):
        raise UnreachableError(f"its ssh server is {transport.banner}, not OpenSSH 8.9 or later")
    hops = transport.hops()
    last = hops[-1]
    if not last.keys:
        raise UnreachableError("the inventory has no `identity_file:` for the device")
    named = host.labels.get("lan_address", "")
    if not named:
        return Peer(host.name, hops, last.address, last.port, host.connect_timeout)
    address, _, port = named.rpartition(":") if named.count(":") == 1 else (named, "", "")
    number = int(port) if port.isdigit() else DEFAULT_PORT
    return Peer(host.name, hops, address, number, host.connect_timeout)


class Bridge:
    """A connection to `source` on which its ssh client can log in to `target`.

    Once that is in, `admitted` takes the agent away: it is there for a login, not for a transfer.
    """

    def __init__(self, source: Peer, traffic: Traffic) -> None:
        """Connect to the source. Raises UnreachableError that says why not."""
        self._lock = threading.Lock()
        self._source = source
        self._client: SshClient | None = None
        agent = self._agent = Agent(Deadline(source.seconds))
        try:
            self._client = SshClient(source.hops, traffic, source.name, agent.socket)
            self._client.open(Deadline(source.seconds))
        except (OSError, ValueError) as error:
            self.close()
            raise UnreachableError(f"cannot start the program ssh: {error}") from error
        except BaseException:
            self.close()
            raise

    def lend(self, target: Peer) -> None:
        """Let the source log in to `target`, for a short while. Raises UnreachableError.

        Only now: before, the client would have asked the agent for its own way to the source.
        """
        seconds = Deadline(2 * target.seconds + _MARGIN_SECONDS)
        keys = target.hops[-1].keys
        try:
            self._agent.add(keys, self._source.key, target.key, target.user, seconds)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise not_lent(error) from error

    def run(self, command: Command, deadline: Deadline, **streams: Unpack[Streams]) -> Result:
        """Run on the source. See Transport.run. For a new connection the agent has no key."""
        if self._client is None:
            raise UnreachableError("the connection between the two boards is closed")
        return self._client.aside(command, deadline, **streams)

    def admitted(self) -> None:
        """The source is logged in: end the agent. From any thread."""
        with self._lock:
            self._agent.close()

    def close(self) -> None:
        """End all of it; never raises."""
        with contextlib.suppress(OSError):
            self.admitted()
        if self._client is not None:
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
