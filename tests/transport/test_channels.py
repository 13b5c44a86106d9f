"""Channels that are open ahead of their commands, on links where a round trip costs time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko
import pytest

from fleet.model.command import Command
from fleet.model.deadline import Deadline
from fleet.model.errors import DeadlineError, FleetError
from fleet.transport import control
from fleet.transport.ssh import SshTransport
from tests.chaos import Chaos, Fault

from .sshd import Sshd, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running(tmp_path_factory.mktemp("sshd")) as one:
        yield one


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each channel that was asked for whether a command waited for it."""
    true_one, seen = paramiko.Transport.open_session, []

    def open_session(self: paramiko.Transport, *args: object, **more: object) -> object:
        seen.append(threading.current_thread() is threading.main_thread())
        return true_one(self, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(paramiko.Transport, "open_session", open_session)
    return seen


def say(link: SshTransport, word: str) -> str:
    """Over a channel of its own: what reads standard input is the last of its channel."""
    return link.run(Command(("cat",)), Deadline(20), stdin=[word.encode()]).text


def idle(opened: list[bool], count: int) -> None:
    end = time.monotonic() + 20
    while len(opened) < count:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_over_a_far_link_only_the_first_command_waits(
    server: Sshd, tmp_path: Path, opened: list[bool]
) -> None:
    with Chaos(server.port, [Fault(latency=0.03)]) as far:
        link = SshTransport(far.through(server.host(), tmp_path))
        link.open(Deadline(20))
        assert [say(link, word) for word in "abcd"] == list("abcd")
        link.close()
    assert opened[0]
    assert not any(opened[1:])
    assert len(opened) == 5


def test_a_near_link_opens_none_ahead(
    server: Sshd, opened: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "FAR_SECONDS", 5.0)
    link = SshTransport(server.host())
    link.open(Deadline(20))
    assert [say(link, word) for word in "ab"] == ["a", "b"]
    link.close()
    assert opened == [True, True]


@pytest.mark.parametrize("sessions", [1, 2])
def test_a_server_that_allows_few_sessions_is_not_asked_again(
    tmp_path: Path, opened: list[bool], monkeypatch: pytest.MonkeyPatch, sessions: int
) -> None:
    monkeypatch.setattr(control, "FAR_SECONDS", -1.0)
    with running(tmp_path / "strict", f"MaxSessions={sessions}") as strict:
        link = SshTransport(strict.host())
        link.open(Deadline(20))
        for number in range(4):
            assert say(link, f"{number}") == f"{number}"
            idle(opened, 2)
        link.close()
    if sessions == 1:
        assert opened.count(False) == 1, "refused once, then never asked"
        assert opened.count(True) >= 4, "again, where the server still ends the command before"
    else:  # or refused, while the server still ends the command before
        assert opened.count(True) in {1, 2, 3}


def test_commands_side_by_side_have_their_own(
    server: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "FAR_SECONDS", -1.0)
    link = SshTransport(server.host())
    link.open(Deadline(20))
    with ThreadPoolExecutor(6) as pool:
        said = list(pool.map(lambda n: say(link, f"{n}"), range(30)))
    link.close()
    assert said == [f"{n}" for n in range(30)]


def test_one_that_was_cut_is_no_hang(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "FAR_SECONDS", -1.0)
    with Chaos(server.port, []) as way:
        link = SshTransport(way.through(server.host(), tmp_path))
        link.open(Deadline(20))
        assert say(link, "a") == "a"
        way.cut_all()
        with pytest.raises(FleetError):
            say(link, "b")
        link.close()
        link.open(Deadline(20))
        assert say(link, "again") == "again"
        link.close()


def test_one_over_which_nothing_comes_any_more_ends_by_its_deadline(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is sent and never answered: paramiko itself would wait for ever."""
    monkeypatch.setattr(control, "FAR_SECONDS", -1.0)
    with Chaos(server.port, []) as way:
        link = SshTransport(way.through(server.host(), tmp_path))
        link.open(Deadline(20))
        assert say(link, "a") == "a"
        assert link._sessions is not None
        assert link._sessions.channels._early is not None
        assert link._sessions.channels._early.result(20) is not None
        way.swallow()
        asked = ThreadPoolExecutor(1).submit(link.run, Command(("true",)), Deadline(0.5))
        try:
            assert isinstance(asked.exception(30), DeadlineError)
        finally:
            link.close()
