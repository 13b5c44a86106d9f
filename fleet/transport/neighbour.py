"""The connection from one board to another on the same network, without a secret on either.

The workstation connects to the source and forwards its own agent. The source's ssh client uses it
to log in to the target. That client trusts one host key: the one on the workstation's own
connection to the target.
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

# An ssh-agent of fleet with the key of one board, for the connection from one neighbour. OpenSSH
# 8.9 binds a key in an agent to a path: from board A to board B as one user. A can use the
# forwarded agent only for this login.

NEEDED = (8, 9)  # OpenSSH that can bind keys of an agent: openssh.com/agent-restrict.html
_VERSION = re.compile(r"OpenSSH(?:_for_Windows)?_(\d+)\.(\d+)")
_USER = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]*")  # ssh-add treats ?, *, @ and > as syntax
_LOOK_SECONDS = 0.005
_END_SECONDS = 5.0
_WITHOUT = "deploy without relay: remove `relay` from `tune:` or --tune"
# cat ends with its input: on close(), or when this process ends for any reason.
_KEEPER = (
    'ssh-agent -D -a "$1/agent" > /dev/null 2>&1 &\n'
    'cat > /dev/null\nkill "$!"\nwait "$!"\nrm -rf -- "$1"'
)


def can_bind(version: str) -> bool:
    """Return True for the banner or `ssh -V` of an OpenSSH that binds keys."""
    match = _VERSION.search(version)
    return match is not None and (int(match[1]), int(match[2])) >= NEEDED


@cache
def lacking() -> str:
    """Return why this machine cannot forward a key that is bound to a path, "" if it can."""
    for program in ("ssh", "ssh-agent", "ssh-add"):
        if shutil.which(program) is None:
            return f"the program {program} is missing on this workstation"
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(["ssh", "-V"], capture_output=True, timeout=10, check=False)
        version = done.stderr.decode("utf-8", "replace").strip()
        if can_bind(version):
            return ""
        return f"{version or 'the ssh client'} cannot restrict a key to one destination"
    return "the ssh client of this workstation does not answer"


class Agent:
    """An ssh-agent process with a socket in a folder of mode 0700. It ends with this process."""

    def __init__(self, deadline: Deadline) -> None:
        """Start the agent. Raises UnreachableError if it does not start."""
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
        """Load these key files, restricted to the path from `source` to `target` as `user`.

        `source` and `target` are lines of known_hosts without names. Raises UnreachableError with
        the text of ssh-add if no key can be loaded.
        """
        if not _USER.fullmatch(user):
            raise UnreachableError(
                f"ssh-agent cannot restrict a key to the user name {user!r}", hint=_WITHOUT
            )
        known = self._folder / "known"
        known.write_text(f"fleet-source {source}\nfleet-target {target}\n", "utf-8")
        output = ""
        held = 0
        for key in keys:
            done = subprocess.run(
                # The first hop must be permitted too, with a user name that no board has.
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
            output = done.stderr.decode("utf-8", "replace").strip() or output
        if not held:
            raise not_lent(output.splitlines()[-1][-200:] if output else "no key file")

    def close(self) -> None:
        """End the agent and remove its folder. Never raises."""
        if self._keeper.stdin is not None:
            with contextlib.suppress(OSError):
                self._keeper.stdin.close()
        try:
            self._keeper.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            end(self._keeper)
        shutil.rmtree(self._folder, ignore_errors=True)


def not_lent(why: object) -> UnreachableError:
    """Return the error for a key that ssh-add does not accept."""
    return UnreachableError(
        f"ssh-add cannot load the key that lets one board log in to the next: {why}",
        hint=_WITHOUT,
    )


def _path() -> str:
    return str(Path(shutil.which("ssh-add") or "/usr/bin/ssh-add").parent)


_MARGIN_SECONDS = 10.0  # for a board that starts programs slowly


@dataclass(frozen=True)
class Peer:
    """A board as its neighbours see it. They connect to `address` and `port`."""

    name: str
    hops: tuple[Hop, ...]
    address: str
    port: int
    seconds: float

    @property
    def user(self) -> str:
        """The login user."""
        return self.hops[-1].user

    @property
    def key(self) -> str:
        """The host key on the workstation's connection: its type and base64."""
        return self.hops[-1].known[0]


def peer_of(transport: Transport, host: Host) -> Peer:
    """Return the board of an open connection.

    Raises UnreachableError with the reason if it cannot be one.

    The label `lan_address` (HOST or HOST:PORT) is the address for neighbours if it differs from the
    workstation's.
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

    After the login `admitted` ends the agent, which is not needed for the transfer.
    """

    def __init__(self, source: Peer, traffic: Traffic) -> None:
        """Connect to the source. Raises UnreachableError with the reason."""
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
        """Let the source log in to `target` for a short time. Raises UnreachableError.

        This must follow the connection to the source: otherwise the client would use the agent
        there.
        """
        seconds = Deadline(2 * target.seconds + _MARGIN_SECONDS)
        keys = target.hops[-1].keys
        try:
            self._agent.add(keys, self._source.key, target.key, target.user, seconds)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise not_lent(error) from error

    def run(self, command: Command, deadline: Deadline, **streams: Unpack[Streams]) -> Result:
        """Run a command on the source; see Transport.run.

        A new connection gets no key of the agent.
        """
        if self._client is None:
            raise UnreachableError("the connection between the two boards is closed")
        return self._client.aside(command, deadline, **streams)

    def admitted(self) -> None:
        """End the agent after the source's login, from any thread."""
        with self._lock:
            self._agent.close()

    def close(self) -> None:
        """Close the connection and end the agent. Never raises."""
        with contextlib.suppress(OSError):
            self.admitted()
        if self._client is not None:
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
