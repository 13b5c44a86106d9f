"""The way to a host: what the inventory says, then the ssh config, for each hop.

The first value wins, as in ssh_config(5): the inventory's, the user's file, the system's.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shlex
import subprocess
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any

import paramiko

from fleet.config.ranges import split_port
from fleet.model.errors import InputError, reason
from fleet.model.inventory import Host

DEFAULT_PORT = 22
Criterion = dict[str, Any]  # of a `Match` line, as paramiko has it
CONFIGS = ("~/.ssh/config", "/etc/ssh/ssh_config")
_END_SECONDS = 2.0
_SOON_SECONDS = 0.2
_MOST_WORDS = 4096
_MATCH = re.compile(r"(?i)\s*match\b")
_COMMAND = re.compile(r"(?i)\s*\w+command\b")  # the rest of its line is for a shell
_COMMENT = re.compile(r"""((?:[^"'#]|"[^"]*"|'[^']*'|(?<!\s)#)*?)\s+#.*""")
_VALUED = {"host", "originalhost", "user", "localuser", "exec"}  # criteria of `Match`
_BARE = {"all", "canonical", "final"}


class _Proxy(paramiko.ProxyCommand):
    """paramiko's, which leaves the process and its pipes to themselves."""

    process: subprocess.Popen[bytes]

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words
        self.last_words = ""  # of a command that ended by itself
        self._gone = False  # it takes and says nothing any more

    def send(self, content: Any) -> int:  # noqa: ANN401 - bytes of any kind
        """See socket.send."""
        try:
            sent: int = super().send(content)
        except paramiko.ProxyCommandFailure:
            self._gone = True
            raise
        return sent

    def recv(self, size: int) -> bytes:
        """See socket.recv."""
        try:
            data: bytes = super().recv(size)
        except paramiko.ProxyCommandFailure:
            self._gone = True
            raise
        self._gone = self._gone or not data
        return data

    def close(self) -> None:
        """End it, and keep why it ended if that was before."""
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
        """Return the last line of the error output, else the exit status; "" if it ended well."""
        pipe, said = self.process.stderr, b""
        if pipe is not None and not pipe.closed:
            os.set_blocking(pipe.fileno(), False)
            with contextlib.suppress(OSError):
                said = os.read(pipe.fileno(), _MOST_WORDS)
        lines = said.decode("utf-8", "replace").strip().splitlines()
        return (lines[-1] if lines else f"exit status {status}") if status else ""


class Connection:
    """A login, not yet open. `gateway` is what it goes through: a jump host or a ProxyCommand."""

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
        """`limit`: seconds to connect. `options` are those of paramiko's `connect`; of its keys
        `optional_keys`, of an ssh config, need not be there.
        """
        self.host, self.port = address
        self.user = user
        self.gateway = gateway
        self.client = paramiko.SSHClient()
        self.transport: Any = None  # paramiko's, once it is open
        self.options = options
        self._limit = limit
        self._optional_keys = optional_keys

    def open(self) -> None:
        """Connect and log in, hop by hop. Raises what paramiko raises."""
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
    """Raise ProxyCommandFailure with the command's last words if it ended during the login."""
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
    """A connection, its jump host, that one's, and so on; no ProxyCommand."""
    while isinstance(connection, Connection):
        yield connection
        connection = connection.gateway


def connection_to(host: Host, limit: float, options: Mapping[str, Any]) -> Connection:
    """The way to a host through all its jump hosts. `limit`: seconds for each hop.

    Jump hosts of the inventory are logged in to with its keys, those of an ssh config with
    the config's. Raises InputError for an ssh config that cannot be understood.
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
    """What the inventory has to log in with, in paramiko's words. Raises InputError."""
    found: dict[str, Any] = {}
    if host.identity_files:
        found["key_filename"] = [str(path) for path in host.identity_files]
    if host.key_passphrase is not None:
        found["passphrase"] = host.key_passphrase.get().reveal()
    if host.password is not None:
        found["password"] = host.password.get().reveal()
    return found


class _Resolver:
    """Names → connections, by the ssh configs that hold for one host of the inventory."""

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
        """To `[user@]name[:port]`; `behind` are the names whose jump host it is."""
        before, _, rest = name.strip().removeprefix("ssh://").rpartition("@")
        name, written = split_port(rest)
        user, port = user or before or None, port or written
        if name in behind:
            way = " > ".join((*behind, name))
            raise InputError(
                f"the jump hosts of the ssh config form a loop: {way}",
                hint="correct ProxyJump in the ssh config",
            )
        found = self._lookup(name, user, port)
        address = found["hostname"]
        keys = [*options.get("key_filename", ()), *found.get("identityfile", ())]
        return Connection(
            (address, port or int(found.get("port", DEFAULT_PORT))),
            user or found.get("user") or getpass.getuser(),
            gateway or self._gateway(found, {name, address}, (*behind, name)),
            self._limit,
            {**options, "key_filename": keys} if keys else options,
            optional_keys=found.get("identityfile", ()),
        )

    def _gateway(
        self, found: Mapping[str, Any], own: set[str], behind: tuple[str, ...]
    ) -> Connection | str | None:
        """What an ssh config has before a host of these names: the first that is set counts."""
        key = next((key for key in found if key in {"proxyjump", "proxycommand"}), "")
        text: str | None = found.get(key)
        if text is None or text.lower() == "none":
            return None
        if key == "proxycommand":
            return text
        hops = text.split(",")
        if own & {split_port(hop.rpartition("@")[2].strip())[0] for hop in hops}:
            return None  # `Host *` has it, and this is the jump host
        gateway = None
        for hop in hops:
            gateway = self.connection(hop, self._options, gateway=gateway, behind=behind)
        return gateway

    def _lookup(self, name: str, user: str | None, port: int | None) -> Mapping[str, Any]:
        """What is said of a name, lower-case key → value; `hostname` is always there."""
        first = f"User {user}\n" * bool(user) + f"Port {port}\n" * bool(port)
        try:
            found = _parsed(first, *(path.read_text("utf-8") for path in self._files)).lookup(name)
            int(found.get("port", DEFAULT_PORT))
        except (paramiko.SSHException, OSError, ValueError) as error:
            files = ", ".join(map(str, self._files))
            raise InputError(
                f"cannot use the ssh config {files}: {_unusable(error)}",
                hint="correct the file, or set `ssh_config:` in the inventory to another file",
            ) from error
        return found


def _unusable(error: Exception) -> str:
    text = reason(error)
    return (
        text
        if "invalid literal" not in text
        else (f"the value of Port is not a number: {text.split(': ')[-1]}")
    )


class _Config(paramiko.SSHConfig):
    """paramiko's, which runs `Match exec` as ssh does: invoke would read our standard input."""

    def _does_match(self, match_list: list[Criterion], *about: Any) -> bool:  # noqa: ANN401
        for criterion in match_list:
            execs = criterion["type"] == "exec"
            plain = self._decided(criterion, about[0], about[-1]) if execs else criterion
            if not super()._does_match([plain], *about):  # type: ignore[misc]
                return False
        return bool(match_list)

    def _decided(self, criterion: Criterion, host: str, options: object) -> Criterion:
        """Return a criterion that holds for every host if the command ends well, or for none."""
        parameter = criterion["param"]
        command = self._tokenize(options, host, "match-exec", parameter)  # type: ignore[attr-defined]
        argv = [os.environ.get("SHELL") or "/bin/sh", "-c", command]
        nothing = subprocess.DEVNULL
        done = subprocess.run(argv, stdin=nothing, stdout=nothing, check=False)
        negate = criterion["negate"] == (done.returncode == 0)
        return {"type": "originalhost", "param": ["*"], "negate": negate}


@lru_cache(maxsize=8)
def _parsed(*texts: str) -> paramiko.SSHConfig:
    """Once for many boards."""
    config = _Config()
    for text in texts:
        config.parse(StringIO("\n".join(map(for_paramiko, text.splitlines()))))
    return config


def for_paramiko(line: str) -> str:
    """A line as paramiko reads it right. To it a comment behind a value is part of that, a
    criterion that it does not know holds, and `Match final all` is an error. Raises ValueError.
    """
    comment = None if _COMMAND.match(line) else _COMMENT.fullmatch(line)
    line = comment[1] if comment else line
    if not _MATCH.match(line):
        return line
    words = shlex.split(line.replace("=", " ", 1) if "=" in line.split()[0] else line)[1:]
    told: list[str] = []
    while words:
        word = words.pop(0)
        criterion = word.lower()
        if criterion.removeprefix("!") not in _VALUED | _BARE:
            raise ValueError(f"fleet does not support the criterion 'Match {word}'")
        told.append(criterion)
        if criterion.removeprefix("!") in _VALUED:
            told += words[:1]
            del words[:1]
    last = told[:-1] if len(told) > 1 and told[-1] == "all" else told
    return "Match " + shlex.join(last)
