"""Host keys, logins and broken links, against a real OpenSSH server."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from paramiko.ssh_exception import NoValidConnectionsError, SSHException

from fleet.model.command import Command, script
from fleet.model.deadline import Deadline
from fleet.model.errors import (
    AuthError,
    ConnectionLostError,
    FleetError,
    HostKeyError,
    InputError,
    UnreachableError,
)
from fleet.model.inventory import Host
from fleet.model.secret import Secret, SecretRef
from fleet.transport import hostkeys, transport_for
from fleet.transport.control import _drain
from fleet.transport.ssh import SshTransport
from fleet.transport.ssh_errors import mapped

from .sshd import Sshd, free_port, make_key, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running(tmp_path_factory.mktemp("sshd")) as one:
        yield one


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(hostkeys, "USER_KNOWN_HOSTS", tmp_path / "user_known_hosts")
    return tmp_path


# Finds the session's sshd ($up) and the login shell below it ($p), whatever that shell is.
ANCESTORS = """
p=$$
while read -r pid name state up rest < /proc/$p/stat; do
  read -r name < /proc/$up/comm
  case $name in sshd | sshd-session) break ;; esac
  p=$up
done
"""


def attempt(host: Host, **options: bool) -> SshTransport:
    link = SshTransport(host, **options)
    try:
        link.open(Deadline(10))
        assert link.run(Command(("true",)), Deadline(10)).ok
    finally:
        link.close()
    return link


def shown(server: Sshd) -> str:
    out = subprocess.run(
        ["ssh-keygen", "-lf", f"{server.host_key}.pub"], capture_output=True, text=True, check=True
    )
    return out.stdout.split()[1]


def test_pinned_in_own_file(server: Sshd, home: Path) -> None:
    attempt(server.host())


def test_fingerprint_is_the_one_that_ssh_keygen_shows(server: Sshd) -> None:
    link = SshTransport(server.host())
    link.open(Deadline(10))
    assert link.identity(Deadline(5)).value == shown(server)
    link.close()


def test_unknown_key_is_refused_and_named(server: Sshd, home: Path) -> None:
    with pytest.raises(HostKeyError, match="not trusted yet") as caught:
        attempt(server.host(known_hosts=home / "none"))
    assert shown(server) in str(caught.value)
    assert "fleet trust board" in caught.value.hint
    assert not (home / "none").exists()


def test_accept_new_pins_in_own_file_only(server: Sshd, home: Path) -> None:
    own, users = home / "own", home / "user_known_hosts"
    users.write_text("# mine\n")
    attempt(server.host(known_hosts=own), accept_new=True)
    assert f"[127.0.0.1]:{server.port} ssh-ed25519" in own.read_text()
    assert users.read_text() == "# mine\n"
    attempt(server.host(known_hosts=own))


def test_key_in_the_users_file_is_enough(server: Sshd, home: Path) -> None:
    (home / "user_known_hosts").write_text(server.known_hosts.read_text())
    attempt(server.host(known_hosts=home / "none"))


@pytest.mark.parametrize("accept_new", [False, True])
def test_changed_key_is_refused_always_with_both_fingerprints(
    server: Sshd, home: Path, accept_new: bool
) -> None:
    other = make_key(home / "other")
    kind, key = (home / "other.pub").read_text().split()[:2]
    own = home / "own"
    own.write_text(f"[127.0.0.1]:{server.port} {kind} {key}\n")
    with pytest.raises(HostKeyError, match="CHANGED") as caught:
        attempt(server.host(known_hosts=own), accept_new=accept_new)
    old = subprocess.run(
        ["ssh-keygen", "-lf", f"{other}.pub"], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    assert old in str(caught.value)
    assert shown(server) in str(caught.value)
    assert "--reflashed" in caught.value.hint
    assert own.read_text().count("\n") == 1


def test_own_pin_wins_over_a_stale_line_of_the_user(server: Sshd, home: Path) -> None:
    make_key(home / "other")
    kind, key = (home / "other.pub").read_text().split()[:2]
    (home / "user_known_hosts").write_text(f"[127.0.0.1]:{server.port} {kind} {key}\n")
    attempt(server.host())


def test_pin_in_the_inventory(server: Sshd, home: Path) -> None:
    attempt(server.host(known_hosts=home / "none", host_key=shown(server)))
    with pytest.raises(HostKeyError, match="CHANGED"):
        attempt(server.host(host_key="SHA256:" + "A" * 43))


def test_revoked_key_is_refused(server: Sshd, home: Path) -> None:
    kind, key = (server.folder / "host.pub").read_text().split()[:2]
    (home / "user_known_hosts").write_text(f"@revoked * {kind} {key}\n")
    with pytest.raises(HostKeyError, match="revoked"):
        attempt(server.host(known_hosts=home / "none"), accept_new=True)


@pytest.mark.parametrize("before", [" ", "\t", "  \t "])
def test_blanks_before_a_line_are_skipped_as_ssh_does(
    server: Sshd, home: Path, before: str
) -> None:
    kind, key = (server.folder / "host.pub").read_text().split()[:2]
    users = home / "user_known_hosts"
    users.write_text(f"{before}[127.0.0.1]:{server.port} {kind} {key}\n")
    attempt(server.host(known_hosts=home / "none"))
    users.write_text(f"{before}@revoked *  {kind} {key}\n")
    with pytest.raises(HostKeyError, match="revoked"):
        attempt(server.host(known_hosts=home / "none"), accept_new=True)
    words = ["ssh", "-F", "/dev/null", "-o", f"UserKnownHostsFile={users}", "-p", str(server.port)]
    words += ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=accept-new"]
    done = subprocess.run(
        [*words, "127.0.0.1", "true"], capture_output=True, text=True, check=False
    )
    assert "REVOKED HOST KEY" in done.stderr


def test_hashed_line_of_the_user_counts(server: Sshd, home: Path) -> None:
    users = home / "user_known_hosts"
    users.write_text(server.known_hosts.read_text())
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(users)], check=True, capture_output=True)
    assert "127.0.0.1" not in users.read_text()
    attempt(server.host(known_hosts=home / "none"))


def test_wrong_key_is_an_auth_error(server: Sshd, home: Path) -> None:
    with pytest.raises(AuthError, match="refuses the login"):
        attempt(server.host(identity_files=(make_key(home / "stranger"),)))


def test_wrong_password_is_tried_once_and_never_shown(home: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("sshd checks passwords only as root")
    with running(tmp_path / "d", "PasswordAuthentication=yes", "LogLevel=VERBOSE") as server:
        secret = SecretRef("literal", tmp_path, Secret("canary-password"))
        host = server.host(identity_files=(make_key(home / "stranger"),), password=secret)
        with pytest.raises(AuthError) as caught:
            attempt(host)
        log = (server.folder / "sshd.log").read_text()
    assert log.count("Failed password") == 1
    assert "canary" not in repr(caught.value) + str(caught.value) + caught.value.hint + log
    assert "canary" not in repr(host)


def test_a_login_without_any_key_is_a_login_problem(
    server: Sshd, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    host = server.host(identity_files=())
    with pytest.raises(AuthError, match="fleet has no key and no password") as caught:
        attempt(host)
    assert "identity_file:" in caught.value.hint
    assert "ssh-add" in caught.value.hint


@pytest.mark.parametrize("content", ["", "not a key\n", "the .pub file"])
def test_a_file_that_is_no_private_key_is_named(server: Sshd, home: Path, content: str) -> None:
    (home / "id").write_text(content.replace("the .pub file", f"{server.identity}.pub"))
    with pytest.raises(AuthError, match="a file is not a private key") as caught:
        attempt(server.host(identity_files=(home / "id",)))
    assert str(home / "id") in caught.value.message


def test_a_key_file_that_is_a_folder_is_named(server: Sshd, home: Path) -> None:
    (home / "keys").mkdir()
    with pytest.raises(InputError, match="keys cannot be read: this is a folder"):
        attempt(server.host(identity_files=(home / "keys",)))


def test_missing_identity_file_is_named(server: Sshd) -> None:
    with pytest.raises(FleetError, match="no-such-key"):
        attempt(server.host(identity_files=(Path("/nowhere/no-such-key"),)))


def test_closed_port(home: Path) -> None:
    with pytest.raises(UnreachableError, match=r"board: .*\(Connection refused\)") as caught:
        attempt(Host("board", address="127.0.0.1", port=free_port(), known_hosts=home / "k"))
    assert "fleet lab up" in caught.value.hint


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.ECONNREFUSED, "start sshd on the device"),
        (errno.EHOSTUNREACH, "check its cable"),
        (errno.ENETUNREACH, "check the VPN"),
    ],
)
def test_each_way_not_to_be_reached_has_its_cure(number: int, cure: str) -> None:
    one = OSError(number, os.strerror(number))
    many = NoValidConnectionsError({("192.0.2.1", 22): one, ("2001:db8::1", 22, 0, 0): one})
    for error in (one, many):
        opening = mapped(Host("board"), "ssh board", 10.0, opening=True)
        with pytest.raises(UnreachableError) as caught, opening:
            raise error
        assert cure in caught.value.hint
        assert os.strerror(number) in caught.value.message


@pytest.mark.parametrize("number", [errno.EHOSTUNREACH, errno.ENETUNREACH])
def test_no_route_to_a_device_that_was_there_is_a_lost_connection(number: int) -> None:
    """Linux says so of an open connection whose cable was pulled; a run is recorded as lost."""
    with pytest.raises(ConnectionLostError), mapped(Host("board"), "ssh board", 10.0):
        raise OSError(number, os.strerror(number))


def test_a_stopped_lab_is_named_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = tmp_path / "demo" / ".lab"
    lab.mkdir(parents=True)
    for name in ("id_ed25519", "password", "ssh_config"):
        (lab / name).write_text("")
    host = Host("lab001", ssh_config=lab / "ssh_config")
    refused = NoValidConnectionsError({("127.0.0.1", 23001): OSError(errno.ECONNREFUSED, "")})
    for here, command in (
        (tmp_path, "fleet lab up --dir demo/.lab ("),
        (lab.parent, "fleet lab up ("),
    ):
        monkeypatch.chdir(here)
        with pytest.raises(UnreachableError) as caught, mapped(host, "ssh lab001", 10.0):
            raise refused
        assert caught.value.hint.startswith(command)


def test_several_ways_not_to_be_reached_have_the_plain_cure() -> None:
    errors = [OSError(one, "") for one in (errno.ECONNREFUSED, errno.EHOSTUNREACH)]
    many = NoValidConnectionsError({("192.0.2.1", 22): errors[0], ("192.0.2.2", 22): errors[1]})
    with pytest.raises(UnreachableError) as caught, mapped(Host("board"), "ssh board", 10.0):
        raise many
    assert "the address of the device" in caught.value.hint
    assert "(Connection refused, No route to host)" in caught.value.message


def test_silent_port_ends_within_the_deadline(home: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        host = Host("b", address="127.0.0.1", port=port, known_hosts=home / "k", connect_timeout=1)
        with pytest.raises(UnreachableError):
            attempt(host)


def test_port_that_speaks_something_else(home: Path) -> None:
    with socket.socket() as web:
        web.bind(("127.0.0.1", 0))
        web.listen()

        def answer() -> None:
            peer, _ = web.accept()
            with peer:
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        port = web.getsockname()[1]
        host = Host("b", address="127.0.0.1", port=port, known_hosts=home / "k", connect_timeout=3)
        with pytest.raises((UnreachableError, ConnectionLostError)):
            attempt(host)
        thread.join(5)


def test_unknown_name(home: Path) -> None:
    with pytest.raises(UnreachableError, match="cannot be resolved"):
        attempt(Host("b", address="no-such-host.invalid", known_hosts=home / "k"))


def test_server_that_dies_during_a_command(tmp_path: Path, home: Path) -> None:
    kill_sshd = ANCESTORS + "kill -9 $up; sleep 20"
    with running(tmp_path / "d") as server:
        link = SshTransport(server.host())
        link.open(Deadline(10))
        with pytest.raises(ConnectionLostError):
            link.run(script(kill_sshd), Deadline(15))
        with pytest.raises(ConnectionLostError):
            link.run(Command(("true",)), Deadline(5))
        link.close()


def test_nagle_is_off(server: Sshd) -> None:
    link = SshTransport(server.host())
    link.open(Deadline(10))
    raw = link._live().sock
    assert isinstance(raw, socket.socket)
    assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    cipher = link._live().remote_cipher  # type: ignore[attr-defined]  # the stubs lack it
    assert cipher.endswith("gcm@openssh.com")
    link.close()


def test_ssh_config_alias_user_port_and_key(server: Sshd, tmp_path: Path) -> None:
    import getpass

    config = tmp_path / "ssh_config"
    config.write_text(
        f"Host evk\n  HostName 127.0.0.1\n  Port {server.port}\n"
        f"  User {getpass.getuser()}\n  IdentityFile {server.identity}\n"
    )
    attempt(Host("x", address="evk", ssh_config=config, known_hosts=server.known_hosts))


@pytest.mark.parametrize("by", ["inventory", "ssh_config"])
def test_proxy_jump(server: Sshd, tmp_path: Path, by: str) -> None:
    import getpass

    user = getpass.getuser()
    with running(tmp_path / "inner") as inner:
        both = tmp_path / "known"
        both.write_text(server.known_hosts.read_text() + inner.known_hosts.read_text())
        jump = f"{user}@127.0.0.1:{server.port}"
        keys = (inner.identity, server.identity)
        if by == "inventory":
            host = inner.host(known_hosts=both, identity_files=keys, proxy_jump=jump)
        else:
            config = tmp_path / "ssh_config"
            config.write_text(
                f"Host inner\n  HostName 127.0.0.1\n  Port {inner.port}\n  ProxyJump {jump}\n"
                f"Host *\n  IdentityFile {inner.identity}\n  IdentityFile {server.identity}\n"
                f"  User {user}\n"
            )
            host = Host("x", address="inner", ssh_config=config, known_hosts=both)
        attempt(host)
        unknown = tmp_path / "only_inner"
        unknown.write_text(inner.known_hosts.read_text())
        if by == "inventory":
            with pytest.raises(HostKeyError):
                attempt(inner.host(known_hosts=unknown, identity_files=keys, proxy_jump=jump))


def test_transport_for_refuses_what_it_does_not_know() -> None:
    with pytest.raises(FleetError, match="not supported"):
        transport_for(Host("x", transport="pigeon"))


def test_a_killed_shell_is_told_from_a_lost_connection(server: Sshd) -> None:
    link = SshTransport(server.host())
    link.open(Deadline(10))
    assert link.run(script(ANCESTORS + "kill -9 $p; sleep 5"), Deadline(15)).status == 255
    assert link.run(Command(("true",)), Deadline(5)).ok
    link.close()


def test_an_answer_in_the_instant_after_the_wait_is_an_answer(
    server: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(Future[None]):
        """The wait runs out, and the answer comes before the thread looks again."""

        def result(self, timeout: float | None = None) -> None:
            super().result(timeout if timeout is None else 10)
            if timeout is not None:
                raise TimeoutError

    monkeypatch.setattr("fleet.transport.control.Future", Late)
    link = SshTransport(server.host())
    link.open(Deadline(10))
    assert link.run(Command(("true",)), Deadline(5)).ok
    link.close()


@pytest.mark.parametrize("error", [EOFError(), OSError("gone"), SSHException("gone")])
def test_a_stream_ends_where_the_word_that_there_is_room_finds_no_connection(
    error: Exception,
) -> None:
    chunks = iter([b"some"])

    def receive(_: int) -> bytes:
        for chunk in chunks:
            return chunk
        raise error

    taken = bytearray()

    def take(chunk: bytes) -> bool:
        taken.extend(chunk)
        return False

    _drain(receive, take, Deadline(5))
    assert taken == b"some"
