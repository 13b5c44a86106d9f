"""Bulk data over the system's ssh client: a third of paramiko's time on the processor.

It obeys the rules of the control connection: the address, user, port, keys and jump hosts that
were found for it, and as host key only the very one that the open connection showed. Passwords
and passphrases are never given to it: then there is no such carrier.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Unpack

from fleet.model.command import Command, Result
from fleet.model.deadline import Deadline
from fleet.model.errors import ConnectionLostError, DeadlineError, UnreachableError
from fleet.model.masking import masked
from fleet.transport.base import Streams, Traffic
from fleet.transport.process import Processes, end
from fleet.transport.quote import render

CIPHERS = "aes128-gcm@openssh.com"
_LOST = 255  # ssh's own status: the connection broke, or was never made
_LOOK_SECONDS = 0.01


@dataclass(frozen=True)
class Hop:
    """One host on the way, as resolved. `key` is its line for known_hosts without the name."""

    address: str
    port: int
    user: str
    keys: tuple[str, ...]
    known: tuple[str, ...]
    command: str = ""


@cache
def client() -> str:
    """The path of an ssh client that speaks AES-GCM and shares a connection; "" without one."""
    found = shutil.which("ssh")
    if found is None:
        return ""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        listed = subprocess.run(
            [found, "-Q", "cipher"], capture_output=True, timeout=10, check=False
        )
        if CIPHERS.encode() in listed.stdout.split():
            return found
    return ""


class SshClient:
    """A master connection of the ssh client; each `run` is a channel of it."""

    name = "ssh"

    def __init__(
        self, hops: tuple[Hop, ...], traffic: Traffic, device: str, agent: Path | None = None
    ) -> None:
        """`hops`: the way to the board, the board last. `agent`: a socket that is handed on to
        the board (not to the hops); then no other agent is asked for keys.
        """
        self.traffic = traffic
        self._device = device
        self._processes = Processes(traffic)
        self._master: subprocess.Popen[bytes] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="fleet-"))
        self._config = self._folder / "config"
        self._socket = self._folder / "m"
        self._config.write_text(_config(hops, self._folder, agent), "utf-8")
        # The client forwards no agent, not even a named one, unless this variable is set.
        self._env = {**os.environ, "SSH_AUTH_SOCK": str(agent)} if agent else None

    def open(self, deadline: Deadline) -> None:
        """Connect. Raises UnreachableError with the client's own words."""
        log = self._folder / "log"
        with log.open("wb") as words:
            self._master = subprocess.Popen(
                # It ends with this process, however that ends: then its input does.
                [*self._ssh(), "-M", "board", "cat"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=words,
                start_new_session=True,
                env=self._env,
            )
        while not self._socket.exists():
            if self._master.poll() is not None or deadline.expired:
                said = log.read_text("utf-8", "replace").strip().splitlines()[-1:]
                self.close()
                raise UnreachableError(
                    f"the program ssh cannot connect to the device: "
                    f"{' '.join(said) or 'no answer in time'}",
                    device=self._device,
                    hint="connect with fleet's own SSH client: --tune carrier=paramiko",
                )
            time.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """End the connection and remove its folder; never raises."""
        self._processes.end_all()
        if self._master is not None:
            end(self._master)
            if self._master.stdin is not None:
                self._master.stdin.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ssh(self) -> list[str]:
        return [client(), "-F", str(self._config), "-S", str(self._socket)]

    def run(self, command: Command, deadline: Deadline, **streams: Unpack[Streams]) -> Result:
        """See Transport.run. Raises ConnectionLostError and DeadlineError."""
        if self._master is None or self._master.poll() is not None:
            raise ConnectionLostError("the program ssh has ended", device=self._device)
        argv = [*self._ssh(), "board", render(command)]
        try:
            done = self._processes.run(argv, command.argv[0], deadline, env=self._env, **streams)
        except DeadlineError as error:
            error.device = self._device
            raise
        if done.status == _LOST or done.status < 0:
            said = masked(done.error_text)[-200:]
            raise ConnectionLostError(
                f"the connection broke while '{command.argv[0]}' ran; ssh says: {said}",
                device=self._device,
            )
        return done


def terminal(hops: tuple[Hop, ...], folder: Path, device: str) -> list[str]:
    """The argv of a client with a terminal, by the same rules; its configuration is in `folder`."""
    if not client():
        raise UnreachableError(
            "there is no ssh client on this computer that can open a terminal",
            device=device,
            hint="install OpenSSH: sudo apt-get install openssh-client",
        )
    config = folder / "config"
    config.write_text(_config(hops, folder), "utf-8")
    return [client(), "-F", str(config), "-o", "BatchMode=no", "-o", "RequestTTY=auto", "board"]


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
    # As the control connection has it. The default of OpenSSH 9, sntrup761, takes 0.13 s more here.
    ("KexAlgorithms", "^curve25519-sha256,curve25519-sha256@libssh.org"),
    ("Ciphers", f"{CIPHERS},aes256-gcm@openssh.com,aes128-ctr,aes256-ctr"),
)


def _config(hops: tuple[Hop, ...], folder: Path, agent: Path | None = None) -> str:
    """An ssh_config of our own, which reads no other."""
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
    """One quoted word. Raises UnreachableError for what a configuration cannot hold."""
    if any(mark in text for mark in '"\n\r\0'):
        raise UnreachableError(f"an ssh configuration cannot contain {text!r}")
    return '"' + text.replace("%", "%%") + '"'
