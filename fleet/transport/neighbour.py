"""The way from one board to another on the same network, with no secret on either of them.

The workstation connects to the source with an agent of its own handed on (fleet/transport/
agent.py); the source's ssh client logs in to the target with it and knows one host key: the
one that the workstation's own connection to the target saw.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self, Unpack

from fleet.model.command import Command, Result
from fleet.model.deadline import Deadline
from fleet.model.errors import UnreachableError
from fleet.model.inventory import Host
from fleet.transport.base import Streams, Traffic, Transport
from fleet.transport.connection import DEFAULT_PORT
from fleet.transport.process import end
from fleet.transport.ssh import SshTransport
from fleet.transport.sshclient import Hop, SshClient

# An ssh-agent of our own that holds one board's key for the way from one neighbour.
#
# OpenSSH 8.9 binds a key in an agent to a path: from board A to board B as one user. What A may
# do with the forwarded agent is then to log in there, and nowhere else.

NEEDED = (8, 9)  # OpenSSH that can bind keys of an agent: openssh.com/agent-restrict.html
_VERSION = re.compile(r"OpenSSH(?:_for_Windows)?_(\d+)\.(\d+)")
_USER = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]*")  # ssh-add reads ?, *, @ and > as more
_LOOK_SECONDS = 0.005
_END_SECONDS = 5.0
_WITHOUT = "deploy without relay: remove `relay` from `tune:` or --tune"
# cat ends when its input does: on close(), and whenever and however this process ends.
_KEEPER = (
    'ssh-agent -D -a "$1/agent" > /dev/null 2>&1 &\n'
    'cat > /dev/null\nkill "$!"\nwait "$!"\nrm -rf -- "$1"'
)


def can_bind(version: str) -> bool:
    """True for the banner or `ssh -V` of an OpenSSH that binds keys."""
    found = _VERSION.search(version)
    return found is not None and (int(found[1]), int(found[2])) >= NEEDED


@cache
def lacking() -> str:
    """Why this machine cannot hand on a key bound to a path; "" when it can."""
    for program in ("ssh", "ssh-agent", "ssh-add"):
        if shutil.which(program) is None:
            return f"the program {program} is missing on this workstation"
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        said = subprocess.run(["ssh", "-V"], capture_output=True, timeout=10, check=False)
        version = said.stderr.decode("utf-8", "replace").strip()
        if can_bind(version):
            return ""
        return f"{version or 'the ssh client'} cannot restrict a key to one destination"
    return "the ssh client of this workstation does not answer"


class Agent:
    """A process of ours with a socket in a folder of mode 0700; it ends with this process."""

    def __init__(self, deadline: Deadline) -> None:
        """Raises UnreachableError when it does not start."""
        self._folder = Path(tempfile.mkdtemp(prefix="fleet-"))
        self.socket = self._folder / "agent"
        self._keeper = subprocess.Popen(
            ["sh", "-c", _KEEPER, "fleet", str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while not self.socket.exists():
            if self._keeper.poll() is not None or deadline.expired:
                self.close()
                raise UnreachableError("the program ssh-agent does not start")
            time.sleep(_LOOK_SECONDS)

    def add(
        self, keys: Sequence[str], source: str, target: str, user: str, deadline: Deadline
    ) -> None:
        """Hold these key files, for the way from `source` to `target` as `user` only.

        `source` and `target` are lines of known_hosts without names. Raises UnreachableError
        when none of the keys can be held so, with the words of ssh-add.
        """
        if not _USER.fullmatch(user):
            raise UnreachableError(
                f"ssh-agent cannot restrict a key to the user name {user!r}", hint=_WITHOUT
            )
        known = self._folder / "known"
        known.write_text(f"fleet-source {source}\nfleet-target {target}\n", "utf-8")
        said = ""
        held = 0
        for key in keys:
            done = subprocess.run(
                # The first hop must be permitted too; as a user that no board has.
                [
                    *("ssh-add", "-q", "-t", str(max(1, int(deadline.seconds)))),
                    *("-H", str(known), "-h", "fleet-relay-only@fleet-source"),
                    *("-h", f"fleet-source>{user}@fleet-target", "--", key),
                ],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=max(1.0, deadline.remaining),
                check=False,
                env={"PATH": _path(), "SSH_AUTH_SOCK": str(self.socket)},
                start_new_session=True,  # no terminal: nobody is asked for a passphrase
            )
            held += not done.returncode
            said = done.stderr.decode("utf-8", "replace").strip() or said
        if not held:
            raise not_lent(said.splitlines()[-1][-200:] if said else "no key file")

    def close(self) -> None:
        """End it and remove its folder; never raises."""
        if self._keeper.stdin is not None:
            with contextlib.suppress(OSError):
                self._keeper.stdin.close()
        try:
            self._keeper.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            end(self._keeper)
        shutil.rmtree(self._folder, ignore_errors=True)


def not_lent(why: object) -> UnreachableError:
    """The error for a key that ssh-add does not take."""
    return UnreachableError(
        f"ssh-add cannot load the key that lets one board log in to the next: {why}",
        hint=_WITHOUT,
    )


def _path() -> str:
    return str(Path(shutil.which("ssh-add") or "/usr/bin/ssh-add").parent)


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
