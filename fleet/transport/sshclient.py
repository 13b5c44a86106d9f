"""Bulk data over the system's ssh client, which needs a third of paramiko's processor time.

It follows the control connection: the same address, user, port, keys and jump hosts, and only the
host key that the open connection showed. It never gets passwords or passphrases. If the login needs
one, this carrier does not exist.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Unpack

from fleet.model.command import Command, Result
from fleet.model.deadline import Deadline
from fleet.model.errors import ConnectionLostError, DeadlineError, UnreachableError
from fleet.model.masking import masked
from fleet.transport import loop
from fleet.transport.base import Carrier, Streams, Traffic
from fleet.transport.process import Processes, end, pipes
from fleet.transport.quote import render

CIPHERS = "aes128-gcm@openssh.com"
_LOST = 255  # ssh's own status: the connection broke, or was never established
_LOOK_SECONDS = 0.005


@dataclass(frozen=True)
class Hop:
    """A resolved host on the route. `known` are its lines of known_hosts without the name."""

    address: str
    port: int
    user: str
    keys: tuple[str, ...]
    known: tuple[str, ...]
    command: str = ""


@cache
def client() -> str:
    """Return the path of an ssh client with AES-GCM and connection sharing, "" if there is none."""
    path = shutil.which("ssh")
    if path is None:
        return ""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        listed = subprocess.run(
            [path, "-Q", "cipher"], capture_output=True, timeout=10, check=False
        )
        if CIPHERS.encode() in listed.stdout.split():
            return path
    return ""


class SshClient(Carrier):
    """A connection of the ssh client. Its login shell starts before the first command.

    The first command uses that session. A `trial` and parallel commands use other sessions of the
    same connection. The connection ends with the first session; a further command opens a new one.
    """

    name = "ssh"

    def __init__(
        self, hops: tuple[Hop, ...], traffic: Traffic, device: str, agent: Path | None = None
    ) -> None:
        """Prepare a connection. `hops` is the route; the board is last.

        `agent` is a socket that is forwarded to the board (not to the hops); no other agent is then
        used.
        """
        self.traffic = traffic
        self._device = device
        self._processes = Processes(traffic)
        self._master: subprocess.Popen[bytes] | None = None
        self._used = False  # the master's session has run its command
        self._folder = Path(tempfile.mkdtemp(prefix="fleet-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._config = self._folder / "config"
        self._socket = self._folder / "m"
        self._rules = _config(hops, self._folder, agent)
        # The client forwards no agent, not even a named one, unless this variable is set.
        self._env = {**os.environ, "SSH_AUTH_SOCK": str(agent)} if agent else None

    def open(self, deadline: Deadline) -> None:
        """Connect. Raises UnreachableError with the client's own text."""
        # The client ends when its input ends, so it never outlives this process. It does not read
        # input before it is connected; therefore it and the clients of its jump hosts have a time
        # limit.
        limit = f"ConnectTimeout {math.ceil(max(1.0, deadline.remaining))}\n"
        self._config.write_text(limit + self._rules, "utf-8")
        argv = [*self._ssh(), "-M", "board", loop.line()]
        self._used = False
        master = self._master = self._processes.start(argv, self._env)
        while not self._socket.exists():
            if master.poll() is not None or deadline.expired:
                end(master)
                answer = (
                    pipes(master)[2].read().decode("utf-8", "replace").strip().splitlines()[-1:]
                )
                self.close()
                raise UnreachableError(
                    f"the program ssh cannot connect to the device: "
                    f"{' '.join(answer) or 'no answer in time'}",
                    device=self._device,
                    hint="connect with fleet's own SSH client: --tune carrier=paramiko",
                )
            time.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """End the connection and remove its folder. Never raises."""
        self._processes.end_all()
        self._let_go()
        self._remove()

    def _let_go(self) -> None:
        master, self._master = self._master, None
        if master is not None:
            end(master)
            # otherwise the reading threads close them
            for pipe in () if self._used else pipes(master):
                pipe.close()

    def _ssh(self) -> list[str]:
        return [client(), "-F", str(self._config), "-S", str(self._socket)]

    def run(self, command: Command, deadline: Deadline, **streams: Unpack[Streams]) -> Result:
        """Run a command; see Transport.run. Raises ConnectionLostError and DeadlineError."""
        if self._used and not self._alive and self._remove.alive:
            self._let_go()
            self._socket.unlink(missing_ok=True)
            self.open(deadline)
        master = self._master
        if master is None or not self._alive:
            raise ConnectionLostError("the program ssh ended", device=self._device)
        if self._used:
            return self.aside(command, deadline, **streams)
        self._used = True
        frames: list[loop.Framed] = []

        def framed(take: Callable[[bytes], object]) -> loop.Framed:
            frames.append(loop.Framed(take, 1, last=True))
            return frames[-1]

        asked = loop.request(1, command, last=True)
        with self._judged(command) as ended:
            ended.append(
                self._processes.follow(
                    master, command.argv[0], deadline, head=asked, frames=framed, **streams
                )
            )
            if not frames[0].begun:
                raise self._lost(command, frames[1].noise.decode("utf-8", "replace"))
        return ended[0]

    def aside(self, command: Command, deadline: Deadline, **streams: Unpack[Streams]) -> Result:
        """Run a command in a second session with its own login shell."""
        argv = [*self._ssh(), "board", render(command)]
        with self._judged(command) as ended:
            ended.append(
                self._processes.run(argv, command.argv[0], deadline, env=self._env, **streams)
            )
        return ended[0]

    def trial(self) -> Carrier:
        """Return a carrier of second sessions; see Carrier.trial."""
        return _Aside(self)

    @property
    def _alive(self) -> bool:
        return self._master is not None and self._master.poll() is None

    @contextlib.contextmanager
    def _judged(self, command: Command) -> Iterator[list[Result]]:
        """Raise the errors of the ssh client itself."""
        ended: list[Result] = []
        try:
            yield ended
        except DeadlineError as error:
            error.device = self._device
            raise
        if ended[0].status == _LOST or ended[0].status < 0:
            raise self._lost(command, ended[0].error_text)

    def _lost(self, command: Command, output: str) -> ConnectionLostError:
        return ConnectionLostError(
            f"the ssh connection broke while '{command.argv[0]}' was running; "
            f"ssh says: {masked(output)[-200:]}",
            device=self._device,
        )


class _Aside(Carrier):
    """A carrier that uses second sessions of a client's connection."""

    name = SshClient.name

    def __init__(self, whole: SshClient) -> None:
        self._whole = whole

    def run(self, command: Command, deadline: Deadline, **streams: Unpack[Streams]) -> Result:
        """Run a command; see Carrier.run."""
        return self._whole.aside(command, deadline, **streams)

    def close(self) -> None:
        """Do nothing; the client closes the connection."""


def terminal(hops: tuple[Hop, ...], folder: Path, device: str, command: str = "") -> list[str]:
    """Return ssh's argv with a terminal, and write its config. Raises UnreachableError."""
    if not client():
        raise UnreachableError(
            "this computer has no ssh client that can open a terminal",
            device=device,
            hint="install OpenSSH: sudo apt-get install openssh-client",
        )
    config = folder / "config"
    config.write_text(_config(hops, folder), "utf-8")
    # `yes` requests a terminal for a command too, if this process has one.
    options = ("-o", "BatchMode=no", "-o", f"RequestTTY={'yes' if command else 'auto'}")
    return [client(), "-F", str(config), *options, "board", *([command] if command else [])]


_OPTIONS = (
    ("BatchMode", "yes"),
    ("StrictHostKeyChecking", "yes"),
    ("GlobalKnownHostsFile", "/dev/null"),
    ("UpdateHostKeys", "no"),
    ("CheckHostIP", "no"),
    ("ControlMaster", "no"),
    ("ControlPersist", "no"),
    ("ClearAllForwardings", "yes"),
    ("ForwardAgent", "no"),
    ("PermitLocalCommand", "no"),
    ("RequestTTY", "no"),
    ("Compression", "no"),
    ("ServerAliveInterval", "10"),
    ("ServerAliveCountMax", "3"),
    ("LogLevel", "ERROR"),
    # Same as on the control connection. sntrup761, the default of OpenSSH 9, takes 0.13 s more.
    ("KexAlgorithms", "^curve25519-sha256,curve25519-sha256@libssh.org"),
    ("Ciphers", f"{CIPHERS},aes256-gcm@openssh.com,aes128-ctr,aes256-ctr"),
)


def _config(hops: tuple[Hop, ...], folder: Path, agent: Path | None = None) -> str:
    """Return an ssh_config of the hops that includes no other file; write their known hosts."""
    lines = []
    for number, hop in enumerate(hops):
        last = number == len(hops) - 1
        name = "board" if last else f"hop{number}"
        known = folder / f"known{number}"
        known.write_text("".join(f"fleet-{name} {line}\n" for line in hop.known), "utf-8")
        lines += [
            f"Host {name}",
            f"HostName {_word(hop.address)}",
            f"Port {hop.port}",
            f"User {_word(hop.user)}",
            f"HostKeyAlias fleet-{name}",
            f"UserKnownHostsFile {_word(str(known))}",
        ]
        if last and agent is not None:
            lines.append(f"ForwardAgent {_word(str(agent))}")
        lines += [f"IdentityFile {_word(key)}" for key in hop.keys]
        if hop.keys:
            lines.append("IdentitiesOnly yes")
        if hop.command:
            lines.append(f"ProxyCommand {hop.command}")
        elif number:
            lines.append(f"ProxyJump hop{number - 1}")
    lines.append("Host *")
    lines += [f"{name} {value}" for name, value in _OPTIONS]
    return "\n".join(lines) + "\n"


def _word(text: str) -> str:
    """Quote one word. Raises UnreachableError for text that a configuration cannot contain."""
    if any(mark in text for mark in '"\n\r\0'):
        raise UnreachableError(f"an ssh configuration cannot contain {text!r}")
    return '"' + text.replace("%", "%%") + '"'
