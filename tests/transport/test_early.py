"""A connection that is begun before it is wanted: one login shell, and the errors of any other."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.model.command import Command
from fleet.model.deadline import Deadline
from fleet.model.errors import HostKeyError, UnreachableError
from fleet.model.inventory import Host
from fleet.model.secret import SecretRef
from fleet.transport.early import MOST, begun, sharing
from fleet.transport.ssh import SshTransport
from fleet.transport.sshclient import SshClient, client

from .sshd import Sshd, counting, make_key


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sshd, Callable[[], int]]]:
    with counting(tmp_path_factory.mktemp("sshd")) as one:
        yield one


def say(link: object, word: str) -> str:
    assert isinstance(link, SshTransport)
    return link.run(Command(("echo", word)), Deadline(20)).text.strip()


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_its_login_shell_is_that_of_the_first_command(
    server: tuple[Sshd, Callable[[], int]],
) -> None:
    host, before = server[0].host(), server[1]()
    with begun([host], 16) as transports:
        link = transports[host.name]
        until(lambda: server[1]() == before + 1)
        link.open(Deadline(20))
        assert [say(link, word) for word in "ab"] == ["a", "b"]
        assert server[1]() == before + 1
    with pytest.raises(UnreachableError):
        say(link, "closed")


def test_who_opens_it_at_once_has_one_too(server: tuple[Sshd, Callable[[], int]]) -> None:
    host, before = server[0].host(), server[1]()
    with begun([host], 16) as transports:
        transports[host.name].open(Deadline(20))
        assert say(transports[host.name], "a") == "a"
        assert server[1]() == before + 1


def test_a_shell_that_ended_meanwhile_is_followed_by_another(
    server: tuple[Sshd, Callable[[], int]],
) -> None:
    host = server[0].host()
    with begun([host], 16) as transports:
        link = transports[host.name]
        assert isinstance(link, SshTransport)
        until(lambda: bool(link._sessions and link._sessions._idle))
        assert link._sessions
        assert link._sessions._idle
        channel = link._sessions._idle.channel
        channel.shutdown_write()
        until(channel.exit_status_ready)
        link.open(Deadline(20))
        assert say(link, "a") == "a"


@pytest.mark.skipif(not client(), reason="there is no ssh client here that speaks AES-GCM")
def test_with_much_to_send_the_second_carrier_is_begun_too(
    server: tuple[Sshd, Callable[[], int]],
) -> None:
    host, before = server[0].host(), server[1]()
    with begun([host], 16, bulk=True) as transports:
        link = transports[host.name]
        until(lambda: server[1]() == before + 2)
        link.open(Deadline(20))
        with contextlib.closing(link.carrier(Deadline(20))) as second:
            assert second.name == "ssh"
            assert second.run(Command(("echo", "b")), Deadline(20)).text == "b\n"
        assert say(link, "a") == "a"
        assert server[1]() == before + 2


@pytest.mark.skipif(not client(), reason="there is no ssh client here that speaks AES-GCM")
def test_a_second_carrier_that_nobody_asked_for_ends_with_the_first(
    server: tuple[Sshd, Callable[[], int]],
) -> None:
    host, before = server[0].host(), server[1]()
    with begun([host], 16, bulk=True) as transports:
        link = transports[host.name]
        assert isinstance(link, SshTransport)
        assert link._second
        second = link._second.result()
        assert isinstance(second, SshClient)
        until(lambda: server[1]() == before + 2)
    assert not second._alive
    assert not second._folder.exists()


def test_a_second_carrier_fails_with_the_first_where_nobody_answers() -> None:
    host = Host("gone", address="127.0.0.1", port=9, user="x")
    with begun([host], 16, bulk=True) as transports:
        for asked in (transports["gone"].carrier, transports["gone"].open):
            with pytest.raises(UnreachableError):
                asked(Deadline(20))


@pytest.mark.parametrize("what", ["password", "key_passphrase", "os"])
def test_a_carrier_that_cannot_be_opened_is_not_begun(what: str, tmp_path: Path) -> None:
    secret = SecretRef("env:NONE", tmp_path)
    changes = {"os": "windows"} if what == "os" else {what: secret}
    link = SshTransport(replace(Host("board", address="127.0.0.1", port=9, user="x"), **changes))
    link.expect_carrier()
    assert link._second is None


def test_a_board_that_does_not_answer_is_an_error_of_who_opens() -> None:
    host = Host("gone", address="127.0.0.1", port=9, user="x")
    with begun([host], 16) as transports, pytest.raises(UnreachableError):
        transports["gone"].open(Deadline(20))


def test_another_host_key_is_an_error_of_who_opens(
    server: tuple[Sshd, Callable[[], int]], tmp_path: Path
) -> None:
    kind, text, *_ = make_key(tmp_path / "other").with_suffix(".pub").read_text("utf-8").split()
    host = replace(server[0].host(), host_key=f"{kind} {text}")
    with begun([host], 16) as transports, pytest.raises(HostKeyError):
        transports[host.name].open(Deadline(20))


def test_neither_a_secret_is_asked_for_nor_are_many_connected_before_it_is_time(
    server: tuple[Sshd, Callable[[], int]], tmp_path: Path
) -> None:
    host = server[0].host()
    many = [replace(host, name=f"n{number}") for number in range(MOST + 1)]
    secret = replace(host, password=SecretRef("env:NONE", tmp_path))
    for hosts, parallel in (([secret], 16), (many, 16), (many[:2], 1)):
        with begun(hosts, parallel) as transports:
            assert not transports


def test_the_interpreter_is_shared_as_before_afterwards() -> None:
    usual = sys.getswitchinterval()
    with sharing():
        assert sys.getswitchinterval() < usual
    assert sys.getswitchinterval() == usual
