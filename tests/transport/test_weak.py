"""Weak algorithms are refused, and the user's known_hosts is never written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleet.model.deadline import Deadline
from fleet.model.errors import HostKeyError, TransportError
from fleet.transport import hostkeys
from fleet.transport.ssh import SshTransport
from fleet.transport.trust import offered_key, trust_host

from .sshd import make_key, running

NO_GCM = "Ciphers=aes128-ctr"
WEAK = [
    pytest.param(["KexAlgorithms=diffie-hellman-group14-sha1"], id="kex with SHA-1"),
    pytest.param(["KexAlgorithms=diffie-hellman-group1-sha1"], id="kex of 1024 bits"),
    pytest.param(["KexAlgorithms=diffie-hellman-group-exchange-sha1"], id="group exchange, SHA-1"),
    pytest.param(["Ciphers=3des-cbc"], id="3des"),
    pytest.param(["Ciphers=aes128-cbc"], id="cbc"),
    pytest.param([NO_GCM, "MACs=hmac-md5"], id="mac with MD5"),
]


@pytest.mark.parametrize("options", WEAK)
def test_a_server_that_only_has_weak_algorithms_is_refused(
    tmp_path: Path, options: list[str]
) -> None:
    with running(tmp_path / "sshd", *options) as server:
        link = SshTransport(server.host())
        with pytest.raises(TransportError) as caught:
            link.open(Deadline(10))
        link.close()
        assert caught.value.device == "board"


def test_strong_ones_of_an_older_server_are_taken(tmp_path: Path) -> None:
    options = ("KexAlgorithms=diffie-hellman-group14-sha256", NO_GCM, "MACs=hmac-sha2-256")
    with running(tmp_path / "sshd", *options) as server:
        link = SshTransport(server.host())
        link.open(Deadline(10))
        link.close()


# What other programs leave there: comments, markers, hashed names, lines of no known form.
ODD = b"""# mine, do not touch
@cert-authority *.lab ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAA
|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg= ssh-rsa AAAAB3NzaC1yc2EAAAABIwAAAQEA6
this line is no line of known_hosts
host.with.trailing.blanks ssh-unknown-type AAAA   \r

\xff\xfe not text at all
no newline at the end"""


def test_the_users_known_hosts_is_read_and_never_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused key, a new one, a pinned one, a changed one: bytes and times stay as they are."""
    users = tmp_path / "home" / "known_hosts"
    users.parent.mkdir()
    users.write_bytes(ODD)
    os.utime(users, ns=(10**18, 10**18))
    users.chmod(0o600)
    monkeypatch.setattr(hostkeys, "USER_KNOWN_HOSTS", users)
    before = users.stat()
    with running(tmp_path / "sshd") as server:
        own = tmp_path / "own"
        with pytest.raises(HostKeyError):
            SshTransport(server.host(known_hosts=own)).open(Deadline(10))
        link = SshTransport(server.host(known_hosts=own), accept_new=True)
        link.open(Deadline(10))
        link.close()
        host = server.host(known_hosts=own)
        trust_host(host, offered_key(host))
        make_key(tmp_path / "other")
        own.write_text(f"[127.0.0.1]:{server.port} {(tmp_path / 'other.pub').read_text()}", "utf-8")
        with pytest.raises(HostKeyError):
            SshTransport(host, accept_new=True).open(Deadline(10))
    after = users.stat()
    assert users.read_bytes() == ODD
    assert (after.st_mtime_ns, after.st_ino, after.st_mode) == (
        *(before.st_mtime_ns, before.st_ino, before.st_mode),
    )
    assert sorted(path.name for path in users.parent.iterdir()) == ["known_hosts"]
