"""The ssh transport: one persistent connection of paramiko, with channels for commands."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import paramiko

from fleet.model.command import Command, Result
from fleet.model.deadline import Deadline
from fleet.model.errors import ConnectionLostError, DeadlineError, DeviceError, UnreachableError
from fleet.model.files import Chunk
from fleet.model.inventory import Host
from fleet.transport import windows
from fleet.transport.base import Carrier, Identity, Output, PortStream, Traffic, Transport
from fleet.transport.connection import Connection, connection_to, hops_of
from fleet.transport.control import Commands, Exchange
from fleet.transport.hostkeys import Policy, entry_name, fingerprint, known_keys
from fleet.transport.ssh_errors import mapped
from fleet.transport.sshclient import Hop, SshClient, client, terminal
from fleet.transport.streams import Opening, start

# A socket on which a handshake does not wait for timers. Until its first session, OpenSSH's server
# collects small packets (Nagle), and this kernel delays its acknowledgements. Each side then waits
# 40 ms for the other: once for the user's key and once for the first command (seen with strace;
# OpenSSH 9.2 on loopback).

_FIRST = 64  # reads of a handshake and a first session
_S = TypeVar("_S")


def prompt(sock: _S) -> _S | socket.socket:
    """Return a TCP connection as a prompt socket, and any other connection unchanged."""
    if isinstance(sock, socket.socket) and sock.family in {socket.AF_INET, socket.AF_INET6}:
        return _Prompt(sock)
    return sock


class _Prompt(socket.socket):
    """A socket that sends at once, and acknowledges at once while the connection is new."""

    def __init__(self, sock: socket.socket) -> None:
        limit = sock.gettimeout()
        super().__init__(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self.settimeout(limit)
        self._first = _FIRST if hasattr(socket, "TCP_QUICKACK") else 0
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """Receive bytes; see socket.recv. The kernel resets TCP_QUICKACK, so set it each time."""
        data = super().recv(bufsize, flags)
        if self._first:
            self._first -= 1
            self.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return data


_PROHIBITED = 1  # SSH_OPEN_ADMINISTRATIVELY_PROHIBITED, RFC 4254 section 5.1
KILLED = 255  # the shell on the device was killed; OpenSSH's client uses 255 too
KEEPALIVE_SECONDS = 10  # a NAT table forgets an idle connection after 30 s at the earliest
UNACKED_MS = 30_000  # the kernel gives up on a peer that acknowledges nothing for this long
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes256-ctr")

MACS = (
    "hmac-sha2-256-etm@openssh.com",
    "hmac-sha2-512-etm@openssh.com",
    "hmac-sha2-256",
    "hmac-sha2-512",
)


class _Transport(paramiko.Transport):
    """A transport of paramiko without MD5 and SHA-1, and with AEAD ciphers first.

    They are 1.5 times as fast (lab section 5).
    """

    _preferred_ciphers = CIPHERS
    _preferred_macs = MACS


def _transport(sock: object, **options: bool | dict[str, Any] | None) -> _Transport:
    return _Transport(prompt(sock), **options)  # type: ignore[arg-type]


class SshTransport(Transport):
    """A persistent connection to a device over SSH."""

    name = "paramiko"

    def __init__(self, host: Host, *, accept_new: bool = False, again: bool = False) -> None:  # noqa: ARG002 - for phones
        self.traffic = Traffic()
        self._host = host
        self._accept_new = accept_new
        self._connection: Connection | None = None
        self._sessions: Commands | None = None
        self._key = ""
        self._opened = threading.Event()
        self._begun: Future[None] | None = None
        self._second: Opening | None = None

    @property
    def describe(self) -> str:
        """The address `ssh user@address:port`, as far as the inventory has it."""
        user = f"{self._host.user}@" if self._host.user else ""
        port = f":{self._host.port}" if self._host.port else ""
        return f"ssh {user}{self._host.address or self._host.name}{port}"

    def open(self, deadline: Deadline) -> None:
        """Connect, check the host key before the user name is sent, and authenticate once."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.result()
        elif self._connection is None:
            self._open(deadline)

    def begin(self, *, bulk: bool = False) -> None:
        """Begin to open the connection in a thread. `open` waits for it and raises its errors.

        The login shell of the first command is started too. With `bulk`, so is the second carrier,
        which `carrier` then returns.
        """
        if bulk:
            self.expect_carrier()
        self._begun = Future()
        start(self._begin, self._begun)

    def _begin(self, begun: Future[None]) -> None:
        deadline = Deadline(self._host.connect_timeout)
        try:
            self._open(deadline)
            if self._begun is begun and self.system == "posix":
                begins = partial(Exchange, "sh", deadline, self.traffic, (None, None))
                transport = self._live()
                with contextlib.suppress(paramiko.SSHException, OSError, EOFError, DeadlineError):
                    self._commands(transport).expect(begins, deadline)
        except BaseException as error:  # noqa: BLE001 - raised by `open`
            begun.set_exception(error)
        else:
            begun.set_result(None)

    def _open(self, deadline: Deadline) -> None:
        limit = min(deadline.remaining, self._host.connect_timeout)
        with mapped(self._host, self.describe, limit, opening=True):
            connection = self.connection(limit)
            try:
                connection.open()
                self._key = fingerprint(connection.transport.get_remote_server_key())
                _tune(connection.transport)
            except BaseException:
                self.close()
                raise
            finally:
                self._opened.set()

    def connection(self, limit: float) -> Connection:
        """Return a connection with fleet's keys and policies, not open. `close` ends it."""
        host = self._host
        options: dict[str, Any] = {
            "transport_factory": _transport,
            "banner_timeout": limit,
            "auth_timeout": limit,
            "channel_timeout": limit,
            "look_for_keys": not host.identity_files,
        }
        connection = connection_to(host, limit, options)
        for hop in hops_of(connection):
            self._guard(hop, pinned=hop is connection)
        self._connection = connection
        return connection

    def _guard(self, hop: Connection, *, pinned: bool) -> None:
        """Give a hop its trusted keys; only the board (`pinned`) uses the host's `host_key`."""
        host = self._host if pinned else replace(self._host, host_key=None)
        name = entry_name(hop.host, hop.port)
        if not host.host_key:
            for kind, key in known_keys(host, name).items():
                hop.client.get_host_keys().add(name, kind, key)
        jump = "" if pinned else f"ssh -p {hop.port} {hop.user}@{hop.host}"
        hop.client.set_missing_host_key_policy(Policy(host, accept_new=self._accept_new, jump=jump))

    def close(self) -> None:
        """Close the connection, its jump hosts, and an unused second carrier."""
        second, self._second = self._second, None
        if second is not None:
            second.drop()
        connection, self._connection = self._connection, None
        for hop in hops_of(connection):
            with contextlib.suppress(Exception):
                hop.client.close()

    @property
    def second(self) -> str:
        """The system's ssh client, if it needs no secret of the inventory."""
        if self.system == "windows":
            return ""
        secret = self._host.password or self._host.key_passphrase
        return "ssh" if client() and not secret else ""

    @property
    def system(self) -> str:
        """`os` of the inventory. Without it, the server's banner identifies Windows."""
        if self._host.os is not None:
            return "windows" if self._host.os == "windows" else "posix"
        connection = self._connection
        open_now = connection is not None and connection.transport is not None
        return "windows" if open_now and windows.BANNER in self.banner else "posix"

    def expect_carrier(self) -> None:
        """Begin to open the ssh client in a thread, if `second` names it; see `carrier`."""
        if self._second is None and self.second:
            self._second = Opening(partial(self._carrier, Deadline(self._host.connect_timeout)))

    def carrier(self, deadline: Deadline) -> Carrier:
        """Return the system's ssh client, connected by the same route to the same key.

        While this connection is still opening, the client uses pinned keys if every hop has one. If
        they fail, the client waits for this connection.
        """
        second, self._second = self._second, None
        return self._carrier(deadline) if second is None else second.result()

    def _carrier(self, deadline: Deadline) -> Carrier:
        if not self._opened.is_set():
            with contextlib.suppress(UnreachableError):
                return self._client(self._pinned_hops(), deadline)
            self._opened.wait(deadline.remaining)
        return self._client(self.hops(), deadline)

    def _pinned_hops(self) -> tuple[Hop, ...]:
        hops = [_pinned(self._host, hop) for hop in hops_of(connection_to(self._host, 0.0, {}))]
        if not self.second or self._host.host_key or not all(hop.known for hop in hops):
            raise UnreachableError("the way is not known before", device=self._host.name)
        return tuple(reversed(hops))

    def _client(self, hops: tuple[Hop, ...], deadline: Deadline) -> Carrier:
        carrier = SshClient(hops, self.traffic, self._host.name)
        try:
            carrier.open(Deadline(min(deadline.remaining, self._host.connect_timeout)))
        except BaseException:
            carrier.close()
            raise
        return carrier

    def terminal(self, folder: Path, command: str = "") -> list[str]:
        """Return the argv of a terminal; see Transport.terminal.

        The client asks for a password itself.
        """
        return terminal(self.hops(), folder, self._host.name, command)

    def hops(self) -> tuple[Hop, ...]:
        """Return the hops of the open connection; the board is last."""
        self._live()
        hops = [_hop(hop, (_shown(hop),)) for hop in hops_of(self._connection)]
        return tuple(reversed(hops))

    @property
    def client(self) -> paramiko.SSHClient:
        """The paramiko client of the open connection.

        Raises UnreachableError or ConnectionLostError.
        """
        self._live()
        assert self._connection is not None
        return self._connection.client

    @property
    def banner(self) -> str:
        """The banner of the board's ssh server: `SSH-2.0-OpenSSH_9.2p1 ...`."""
        return str(self._live().remote_version)

    def identity(self, deadline: Deadline) -> Identity:
        """Return the fingerprint of the host key of the open connection."""
        deadline.check("asking for the identity")
        self._live()
        return Identity("host-key", self._key)

    def _live(self) -> paramiko.Transport:
        if self._connection is None:
            raise UnreachableError(
                f"the connection {self.describe} is not open", device=self._host.name
            )
        transport: paramiko.Transport = self._connection.transport
        if not transport.is_active():
            raise ConnectionLostError("the ssh connection broke", device=self._host.name)
        return transport

    def run(
        self,
        command: Command,
        deadline: Deadline,
        *,
        stdin: Iterable[Chunk] = (),
        on_stdout: Output | None = None,
        on_stderr: Output | None = None,
    ) -> Result:
        """Run a command; see Transport.run. At the deadline only the channel is closed."""
        started = time.monotonic()
        transport = self._live()
        self.traffic.add(round_trips=1)
        what, on_windows = command.argv[0], self.system == "windows"
        outputs = on_stdout, on_stderr
        with mapped(self._host, self.describe, deadline.seconds):
            asked = partial(Exchange, what, deadline, self.traffic, outputs)
            commands = self._commands(transport)
            if on_windows:
                spoken = windows.spoken(command, stdin)
                done = commands.alone(asked, windows.line(), spoken, deadline)
            else:
                done = commands.run(asked, command, stdin, deadline)
        killed = done.status < 0 and transport.is_active()
        status = KILLED if killed else done.status
        if status < 0 or not done.begun:
            raise ConnectionLostError(
                f"the ssh connection broke while '{what}' was running", device=self._host.name
            )
        done.check()
        result = Result(status, done.out.taken, done.err.taken, time.monotonic() - started)
        if on_windows:
            windows.explain(result, self._host.name)
        return result

    def _commands(self, transport: paramiko.Transport) -> Commands:
        commands = self._sessions
        if commands is None or commands.transport is not transport:
            commands = self._sessions = Commands(transport)
        return commands

    def dial(self, port: int, deadline: Deadline) -> PortStream:
        """Connect to a port; see Transport.dial. Uses a `direct-tcpip` channel."""
        transport, name = self._live(), self._host.name
        with mapped(self._host, self.describe, deadline.seconds):
            try:
                return transport.open_channel(
                    "direct-tcpip",
                    ("127.0.0.1", port),
                    ("127.0.0.1", 0),
                    timeout=deadline.remaining,
                )
            except paramiko.ChannelException as error:
                if error.code == _PROHIBITED:
                    raise DeviceError(
                        "the ssh server of the device forbids forwarding",
                        device=name,
                        hint="write `AllowTcpForwarding local` in its sshd_config; restart sshd",
                    ) from error
                raise DeviceError(
                    f"no program on the device answers at port {port}",
                    device=name,
                    hint="fleet serve start; or, if the service was started: fleet serve logs",
                ) from error


def _tune(transport: paramiko.Transport) -> None:
    """Set keep-alive and a limit for unacknowledged data."""
    transport.set_keepalive(KEEPALIVE_SECONDS)
    raw = transport.sock
    if isinstance(raw, socket.socket) and hasattr(socket, "TCP_USER_TIMEOUT"):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKED_MS)


def _pinned(host: Host, hop: Connection) -> Hop:
    """Return a hop with the one pinned key that paramiko requests first from a server."""
    keys = known_keys(host, entry_name(hop.host, hop.port))
    return _hop(hop, tuple(f"{kind} {key.get_base64()}" for kind, key in keys.items())[:1])


def _shown(connection: Connection) -> str:
    key = connection.transport.get_remote_server_key()
    return f"{key.get_name()} {key.get_base64()}"


def _hop(connection: Connection, known: tuple[str, ...]) -> Hop:
    """Return a connection in the form that the ssh client needs."""
    command = connection.gateway if isinstance(connection.gateway, str) else ""
    return Hop(
        address=connection.host,
        port=connection.port,
        user=connection.user,
        keys=tuple(connection.options.get("key_filename", ())),
        known=known,
        command=command.replace("%", "%%").replace("\n", " "),
    )
