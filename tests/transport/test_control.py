"""One channel for one command after another: how many login shells start, and what ends it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko
import pytest

from fleet.model.command import Command, script
from fleet.model.deadline import Deadline
from fleet.model.errors import ConnectionLostError, DeadlineError
from fleet.transport import control
from fleet.transport.ssh import SshTransport
from fleet.transport.sshclient import SshClient, client

from .sshd import Sshd, counting, make_key

CAT = Command(("cat",))


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sshd, Callable[[], int]]]:
    """A server of one test: a client that was left while it connects counts in no other test."""
    with counting(tmp_path_factory.mktemp("sshd")) as counted:
        yield counted


@pytest.fixture
def link(server: tuple[Sshd, Callable[[], int]]) -> Iterator[SshTransport]:
    found = SshTransport(server[0].host())
    found.open(Deadline(20))
    yield found
    found.close()


@pytest.fixture
def shells(server: tuple[Sshd, Callable[[], int]]) -> Callable[[], int]:
    return server[1]


def say(link: SshTransport, word: str) -> str:
    return link.run(Command(("echo", word)), Deadline(20)).text.strip()


def test_all_commands_of_a_connection_have_one_login_shell(
    link: SshTransport, shells: Callable[[], int]
) -> None:
    assert [say(link, f"{n}") for n in range(20)] == [f"{n}" for n in range(20)]
    assert link.run(CAT, Deadline(20), stdin=[b"the", b" last"]).stdout == b"the last"
    assert shells() == 1
    assert say(link, "one more") == "one more"
    assert shells() == 2


def test_side_by_side_each_has_its_own_and_one_waits(
    link: SshTransport, shells: Callable[[], int]
) -> None:
    with ThreadPoolExecutor(6) as pool:
        said = list(pool.map(lambda n: say(link, f"{n}"), range(40)))
    assert said == [f"{n}" for n in range(40)]
    assert shells() <= 40
    before = shells()
    assert say(link, "x") == "x"
    assert shells() == before


def test_what_ran_past_its_deadline_has_the_channel_no_more(
    link: SshTransport, shells: Callable[[], int], tmp_path: Path
) -> None:
    """The next one does not wait for it, and what it prints later is nobody's."""
    late = script('until [ -e "$1" ]; do sleep 0.1; done; echo late', f"{tmp_path}/go")
    assert say(link, "a") == "a"
    with pytest.raises(DeadlineError):
        link.run(late, Deadline(0.5))
    (tmp_path / "go").touch()
    assert say(link, "b") == "b"
    assert shells() == 2


def test_a_program_whose_channel_is_cut_finds_nobody_to_write_to(
    link: SshTransport, tmp_path: Path
) -> None:
    """As on a channel of its own: it ends at its next word, and its loop with it."""
    assert say(link, "a") == "a"
    talk = script('echo $$ $PPID > "$1"; while echo x; do sleep 0.05; done', f"{tmp_path}/pids")
    with pytest.raises(DeadlineError):
        link.run(talk, Deadline(1))
    pids = (tmp_path / "pids").read_text().split()
    end = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end, pids
        time.sleep(0.05)


def test_a_loop_that_was_killed_is_an_end_and_the_next_is_another(
    link: SshTransport, shells: Callable[[], int]
) -> None:
    loop_pid = link.run(script("echo $PPID"), Deadline(20)).text.strip()
    assert link.run(script(f"kill -9 {loop_pid}"), Deadline(20)).status in {255, 137}
    assert say(link, "b") == "b"
    assert shells() == 2


def test_a_loop_that_ended_while_it_waited_has_begun_nothing(
    link: SshTransport, shells: Callable[[], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is the command lost, nor is it run twice."""
    seen = tmp_path / "seen"
    kill = script('(sleep 0.3; kill -9 $1) >/dev/null 2>&1 </dev/null & echo "$1"', "$PPID")
    pid = link.run(script("echo $PPID"), Deadline(20)).text.strip()
    link.run(script(kill.argv[2], pid), Deadline(20))
    time.sleep(0.6)
    monkeypatch.setattr(control._Control, "waits", True)  # it is not known here yet
    count = script('echo x >> "$1"', str(seen))
    assert link.run(count, Deadline(20)).ok
    assert seen.read_text() == "x\n"
    assert shells() == 2


def test_a_last_command_that_never_began_is_no_success(
    link: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = link.run(script("echo $PPID"), Deadline(20)).text.strip()
    link.run(script("(sleep 0.3; kill $1) >/dev/null 2>&1 </dev/null &", pid), Deadline(20))
    time.sleep(0.6)
    monkeypatch.setattr(control._Control, "waits", True)
    with pytest.raises(ConnectionLostError):
        link.run(CAT, Deadline(20), stdin=[b"x"])


def test_what_a_program_leaves_behind_it_prints_for_nobody(link: SshTransport) -> None:
    left = script("(sleep 0.3; echo left; echo left >&2) & echo mine")
    assert link.run(left, Deadline(20)).stdout == b"mine\n"
    time.sleep(0.8)
    done = link.run(script("echo next"), Deadline(20))
    assert (done.stdout, done.stderr) == (b"next\n", b"")


def test_one_session_is_enough(tmp_path: Path) -> None:
    with counting(tmp_path, "MaxSessions=1") as (server, count):
        link = SshTransport(server.host())
        link.open(Deadline(20))
        for n in range(3):
            assert [say(link, "a"), say(link, "b")] == ["a", "b"]
            assert link.run(CAT, Deadline(20), stdin=[b"c"]).stdout == b"c"
            assert count() == n + 1
        link.close()


def test_a_line_that_dropbear_does_not_take_goes_by_standard_input(
    link: SshTransport, shells: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    version, lines = "SSH-2.0-dropbear_2022.83", []
    true_one = paramiko.Channel.exec_command

    def exec_command(self: paramiko.Channel, line: str) -> None:
        lines.append(line)
        true_one(self, line)

    monkeypatch.setattr(paramiko.Channel, "exec_command", exec_command)
    assert link._connection is not None
    link._connection.transport.remote_version = version
    long = "x" * 8990
    assert say(link, long) == long
    assert say(link, "b") == "b"
    assert shells() == 1
    assert max(map(len, lines)) <= control.LONGEST_LINE


@pytest.mark.skipif(not client(), reason="there is no ssh client here that speaks AES-GCM")
def test_the_ssh_client_has_one_login_shell_too(
    link: SshTransport, shells: Callable[[], int]
) -> None:
    carrier = link.carrier(Deadline(20))
    try:
        said: list[bytes] = []
        done = carrier.run(CAT, Deadline(20), stdin=[b"a" * 70000], on_stdout=said.append)
        assert (done.status, b"".join(said)) == (0, b"a" * 70000)
        assert shells() == 1
        done = carrier.run(script("cat; echo err >&2; exit 3"), Deadline(20), stdin=[b"anew"])
        assert (done.status, done.stdout, done.stderr) == (3, b"anew", b"err\n")
        assert shells() == 2
    finally:
        carrier.close()


@pytest.mark.skipif(not client(), reason="there is no ssh client here that speaks AES-GCM")
def test_a_client_that_is_left_alone_while_it_connects_gives_up_itself(link: SshTransport) -> None:
    carrier = link.carrier(Deadline(7))
    assert isinstance(carrier, SshClient)
    try:
        asked = [client(), "-G", "-F", str(carrier._config), "board"]
        said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        assert "connecttimeout 7" in said.splitlines()
    finally:
        carrier.close()


@pytest.mark.skipif(not client(), reason="there is no ssh client here that speaks AES-GCM")
def test_a_trial_leaves_the_shell_of_the_ssh_client_to_what_follows(
    link: SshTransport, shells: Callable[[], int]
) -> None:
    carrier = link.carrier(Deadline(20))
    try:
        assert carrier.trial().run(CAT, Deadline(20), stdin=[b"1"]).stdout == b"1"
        assert carrier.run(CAT, Deadline(20), stdin=[b"2"]).stdout == b"2"
        assert shells() == 2
    finally:
        carrier.close()


@pytest.mark.skipif(not client(), reason="there is no ssh client here that speaks AES-GCM")
def test_the_ssh_client_connects_before_the_first_connection_is_there(
    server: tuple[Sshd, Callable[[], int]], tmp_path: Path
) -> None:
    carrier = SshTransport(server[0].host()).carrier(Deadline(20))
    assert carrier.run(CAT, Deadline(20), stdin=[b"x"]).stdout == b"x"
    carrier.close()
    unknown = SshTransport(server[0].host(known_hosts=tmp_path / "none"), accept_new=True)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(unknown.carrier, Deadline(20))
        time.sleep(0.3)
        assert not asked.done(), "it waits for who shows the key"
        unknown.open(Deadline(20))
        carrier = asked.result(20)
    assert carrier.run(CAT, Deadline(20), stdin=[b"y"]).stdout == b"y"
    carrier.close()
    unknown.close()


@pytest.mark.skipif(not client(), reason="there is no ssh client here that speaks AES-GCM")
def test_a_pinned_key_that_is_not_the_first_connections_is_no_end(
    server: tuple[Sshd, Callable[[], int]], tmp_path: Path
) -> None:
    """The server has another kind of key by now, which is pinned too."""
    known = tmp_path / "known"
    other = make_key(tmp_path / "other").with_suffix(".pub").read_text().split()[:2]
    mine = server[0].known_hosts.read_text()
    known.write_text(f"{mine.split()[0]} {' '.join(other)}\n")
    link = SshTransport(server[0].host(known_hosts=known))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(link.carrier, Deadline(20))
        time.sleep(0.5)  # it was refused
        known.write_text(mine)
        link.open(Deadline(20))
        carrier = asked.result(20)
    assert carrier.run(CAT, Deadline(20), stdin=[b"z"]).stdout == b"z"
    carrier.close()
    link.close()
