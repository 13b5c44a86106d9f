"""The route to a host: values of the inventory, then of the ssh config, for each hop.

The first value wins, as in ssh_config(5): inventory, user's file, system's file.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shlex
import subprocess
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any

import paramiko

from fleet.config.ranges import split_port
from fleet.config.ssh_files import expanded
from fleet.model.errors import InputError, reason
from fleet.model.inventory import Host

DEFAULT_PORT = 22
Criterion = dict[str, Any]  # of a `Match` line, in the form of paramiko
CONFIGS = ("~/.ssh/config", "/etc/ssh/ssh_config")
_END_SECONDS = 2.0
_SOON_SECONDS = 0.2
_MOST_WORDS = 4096
_MATCH = re.compile(r"(?i)\s*match\b")
_COMMAND = re.compile(r"(?i)\s*\w+command\b")  # the rest of its line is shell text
_COMMENT = re.compile(r"""((?:[^"'#]|"[^"]*"|'[^']*'|(?<!\s)#)*?)\s+#.*""")
_VALUED = {"host", "originalhost", "user", "localuser", "exec"}  # criteria of `Match`
_BARE = {"all", "canonical", "final"}


class _Proxy(paramiko.ProxyCommand):
    """A ProxyCommand of paramiko that also closes its process and its pipes."""

    process: subprocess.Popen[bytes]

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words
        self.last_words = ""  # of a command that ended by itself
        self._gone = False  # the command no longer reads or writes

    def send(self, content: Any) -> int:  # noqa: ANN401 - bytes of any kind
        """Send bytes; see socket.send."""
        try:
            sent: int = super().send(content)
        except paramiko.ProxyCommandFailure:
            self._gone = True
            raise
        return sent

    def recv(self, size: int) -> bytes:
        """Receive bytes; see socket.recv."""
        try:
            data: bytes = super().recv(size)
        except paramiko.ProxyCommandFailure:
            self._gone = True
            raise
        self._gone = self._gone or not data
        return data

    def close(self) -> None:
        """End the command. Keep the reason if it had ended before."""
        ended = self._gone or self.process.poll() is not None
        if ended and not self.last_words:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.last_words = self._judge(self.process.wait(_SOON_SECONDS))
        self.process.terminate()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _judge(self, status: int) -> str:
        """Return the last line of the error output, else the exit status; "" if the command
        succeeded.
        """
        pipe, output = self.process.stderr, b""
        if pipe is not None and not pipe.closed:
            os.set_blocking(pipe.fileno(), False)
            with contextlib.suppress(OSError):
                output = os.read(pipe.fileno(), _MOST_WORDS)
        lines = output.decode("utf-8", "replace").strip().splitlines()
        return (lines[-1] if lines else f"exit status {status}") if status else ""


class Connection:
    """A login that is not open yet. `gateway` is its jump host or ProxyCommand."""

    def __init__(
        self,
        address: tuple[str, int],
        user: str,
        gateway: Connection | str | None,
        limit: float,
        options: Mapping[str, Any],
        *,
        optional_keys: Collection[str] = (),
    ) -> None:
        """Prepare a login. `limit` is the number of seconds to connect.

        `options` are those of paramiko's `connect`. `optional_keys` are key files from an ssh
        config, which may be missing.
        """
        self.host, self.port = address
        self.user = user
        self.gateway = gateway
        self.client = paramiko.SSHClient()
        self.transport: Any = None  # paramiko's transport, once it is open
        self.options = options
        self._limit = limit
        self._optional_keys = optional_keys

    def open(self) -> None:
        """Connect and log in, hop by hop. Raises paramiko's exceptions."""
        sock: Any = None
        if isinstance(self.gateway, str):
            sock = _started(self.gateway)
        elif self.gateway is not None:
            self.gateway.open()
            there = (self.host, self.port)
            sock = self.gateway.transport.open_channel("direct-tcpip", there, ("", 0))
        keys = [
            key
            for key in self.options.get("key_filename", ())
            if key not in self._optional_keys or Path(key).is_file()
        ]
        options = {**self.options, "key_filename": keys}
        with _judged(sock):
            self.client.connect(
                self.host, self.port, self.user, sock=sock, timeout=self._limit, **options
            )
        self.transport = self.client.get_transport()


def _started(command: str) -> _Proxy:
    """Start a ProxyCommand. Raises InputError if it cannot be started."""
    try:
        return _Proxy(command)
    except (OSError, ValueError, IndexError) as error:
        why = (
            "the program does not exist" if isinstance(error, FileNotFoundError) else reason(error)
        )
        raise InputError(
            f"the ProxyCommand `{command}` of the ssh config cannot be started: {why}",
            hint="correct ProxyCommand in the ssh config; it begins with a program, since fleet "
            "starts it without a shell",
        ) from error


@contextlib.contextmanager
def _judged(sock: object) -> Iterator[None]:
    """Raise ProxyCommandFailure with the last line of the command if it ended during the login."""
    try:
        yield
    except (paramiko.AuthenticationException, paramiko.BadHostKeyException):
        raise
    except (paramiko.SSHException, EOFError, OSError) as error:
        if not isinstance(sock, _Proxy):
            raise
        sock.close()
        if not sock.last_words:
            raise
        raise paramiko.ProxyCommandFailure(sock.words, sock.last_words) from error


def hops_of(connection: Connection | str | None) -> Iterator[Connection]:
    """Yield a connection and all of its jump hosts, nearest first, without a ProxyCommand."""
    while isinstance(connection, Connection):
        yield connection
        connection = connection.gateway


@dataclass(frozen=True)
class Route:
    """The way to a host by inventory and ssh config. None is unset: ssh's own default applies.

    `via` are the jump hosts, or the ProxyCommand, nearest first: `address:port`, with `user@` where
    the user is given.
    """

    address: str
    port: int | None
    user: str | None
    via: tuple[str, ...]
    identity_files: tuple[str, ...]


def route_of(host: Host) -> Route:
    """Return the way to a host. Nothing is opened; a `Match exec` runs, as in ssh.

    Raises InputError for an ssh config that cannot be used.
    """
    resolver, name = _Resolver(host, 0, {}), host.address or host.name
    settings = resolver.settings(name, host.user, host.port)
    made = connection_to(replace(host, key_passphrase=None, password=None), 0, {})
    gateway = made.gateway
    via = (
        (gateway,)
        if isinstance(gateway, str)
        else [
            f"{hop.user}@{hop.host}:{hop.port}"
            if hop.user != getpass.getuser()
            else f"{hop.host}:{hop.port}"
            for hop in hops_of(gateway)
        ]
    )
    return Route(
        made.host,
        made.port if host.port or "port" in settings else None,
        host.user or settings.get("user"),
        tuple(via),
        tuple(made.options.get("key_filename", ())),
    )


def connection_to(host: Host, limit: float, options: Mapping[str, Any]) -> Connection:
    """Return the connection to a host through all its jump hosts. `limit`: seconds for each hop.

    Jump hosts of the inventory use the inventory's keys, those of an ssh config use the config's
    keys. Raises InputError for an ssh config that cannot be parsed.
    """
    resolver = _Resolver(host, limit, options)
    own = {**options, **_credentials(host)}
    of_hops = {name: value for name, value in own.items() if name != "password"}
    gateway = None
    for hop in host.proxy_jump.split(",") if host.proxy_jump else ():
        gateway = resolver.connection(hop, of_hops, gateway=gateway)
    name = host.address or host.name
    return resolver.connection(name, own, user=host.user, port=host.port, gateway=gateway)


def _credentials(host: Host) -> dict[str, Any]:
    """Return the inventory's credentials as options of paramiko. Raises InputError."""
    credentials: dict[str, Any] = {}
    if host.identity_files:
        credentials["key_filename"] = [str(path) for path in host.identity_files]
    if host.key_passphrase is not None:
        credentials["passphrase"] = host.key_passphrase.get().reveal()
    if host.password is not None:
        credentials["password"] = host.password.get().reveal()
    return credentials


class _Resolver:
    """A resolver from names to connections with the ssh configs of one host."""

    def __init__(self, host: Host, limit: float, options: Mapping[str, Any]) -> None:
        self._limit, self._options = limit, options
        own = host.ssh_config
        paths = [own] if own else [Path(name).expanduser() for name in CONFIGS]
        self._files = [path for path in paths if path.is_file() or path == own]

    def connection(
        self,
        name: str,
        options: Mapping[str, Any],
        *,
        user: str | None = None,
        port: int | None = None,
        gateway: Connection | None = None,
        behind: tuple[str, ...] = (),
    ) -> Connection:
        """Return the connection to `[user@]name[:port]`, not open.

        `behind` are the names that led to it; raises InputError if they contain `name`. `gateway`
        replaces the jump hosts of the ssh config.
        """
        before, _, rest = name.strip().removeprefix("ssh://").rpartition("@")
        name, written = split_port(rest)
        user, port = user or before or None, port or written
        if name in behind:
            way = " > ".join((*behind, name))
            raise InputError(
                f"the jump hosts of the ssh config form a loop: {way}",
                hint="correct ProxyJump in the ssh config",
            )
        settings = self.settings(name, user, port)
        address = settings["hostname"]
        keys = [*options.get("key_filename", ()), *settings.get("identityfile", ())]
        return Connection(
            (address, port or int(settings.get("port", DEFAULT_PORT))),
            user or settings.get("user") or getpass.getuser(),
            gateway or self._gateway(settings, {name, address}, (*behind, name)),
            self._limit,
            {**options, "key_filename": keys} if keys else options,
            optional_keys=settings.get("identityfile", ()),
        )

    def _gateway(
        self, settings: Mapping[str, Any], own: set[str], behind: tuple[str, ...]
    ) -> Connection | str | None:
        """Return the gateway in the ssh config of a host with these names. The first
        setting wins.
        """
        key = next((key for key in settings if key in {"proxyjump", "proxycommand"}), "")
        text: str | None = settings.get(key)
        if text is None or text.lower() == "none":
            return None
        if key == "proxycommand":
            return text
        hops = text.split(",")
        if own & {split_port(hop.rpartition("@")[2].strip())[0] for hop in hops}:
            return None  # the setting comes from `Host *`, and this host is the jump host itself
        gateway = None
        for hop in hops:
            gateway = self.connection(hop, self._options, gateway=gateway, behind=behind)
        return gateway

    def settings(self, name: str, user: str | None, port: int | None) -> Mapping[str, Any]:
        """Return the settings of a name by lower-case key. Raises InputError for a bad config."""
        first = f"User {user}\n" * bool(user) + f"Port {port}\n" * bool(port)
        try:
            settings = _parsed(first, *map(expanded, self._files)).lookup(name)
            int(settings.get("port", DEFAULT_PORT))
        except (paramiko.SSHException, OSError, ValueError) as error:
            files = ", ".join(map(str, self._files))
            raise InputError(
                f"cannot use the ssh config {files}: {_unusable(error)}",
                hint="correct the file, or set `ssh_config:` in the inventory to another file",
            ) from error
        return settings


def _unusable(error: Exception) -> str:
    text = reason(error)
    return (
        text
        if "invalid literal" not in text
        else (f"the value of Port is not a number: {text.split(': ')[-1]}")
    )


class _Config(paramiko.SSHConfig):
    """An SSHConfig that runs `Match exec` as ssh does. paramiko's would read our standard input."""

    def _does_match(self, match_list: list[Criterion], *about: Any) -> bool:  # noqa: ANN401
        for criterion in match_list:
            execs = criterion["type"] == "exec"
            plain = self._decided(criterion, about[0], about[-1]) if execs else criterion
            if not super()._does_match([plain], *about):  # type: ignore[misc]
                return False
        return bool(match_list)

    def _decided(self, criterion: Criterion, host: str, options: object) -> Criterion:
        """Return a criterion that matches every host if the command succeeds, or no host if it
        fails.
        """
        parameter = criterion["param"]
        command = self._tokenize(options, host, "match-exec", parameter)  # type: ignore[attr-defined]
        argv = [os.environ.get("SHELL") or "/bin/sh", "-c", command]
        nothing = subprocess.DEVNULL
        done = subprocess.run(argv, stdin=nothing, stdout=nothing, check=False)
        negate = criterion["negate"] == (done.returncode == 0)
        return {"type": "originalhost", "param": ["*"], "negate": negate}


@lru_cache(maxsize=8)
def _parsed(*texts: str) -> paramiko.SSHConfig:
    """Parse ssh configs, once for many boards."""
    config = _Config()
    for text in texts:
        config.parse(StringIO("\n".join(map(for_paramiko, text.splitlines()))))
    return config


def for_paramiko(line: str) -> str:
    """Rewrite a line so that paramiko parses it correctly. Raises ValueError.

    paramiko takes a comment after a value as a part of the value. It accepts every unknown
    criterion, and reports `Match final all` as an error.
    """
    comment = None if _COMMAND.match(line) else _COMMENT.fullmatch(line)
    line = comment[1] if comment else line
    if not _MATCH.match(line):
        return line
    words = shlex.split(line.replace("=", " ", 1) if "=" in line.split()[0] else line)[1:]
    criteria: list[str] = []
    while words:
        word = words.pop(0)
        criterion = word.lower()
        if criterion.removeprefix("!") not in _VALUED | _BARE:
            raise ValueError(f"fleet does not support the criterion 'Match {word}'")
        criteria.append(criterion)
        if criterion.removeprefix("!") in _VALUED:
            criteria += words[:1]
            del words[:1]
    last = criteria[:-1] if len(criteria) > 1 and criteria[-1] == "all" else criteria
    return "Match " + shlex.join(last)
