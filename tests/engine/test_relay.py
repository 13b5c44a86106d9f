"""Boards that serve each other: real sshd, real ssh and ssh-agent, boards of this user."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from fleet.config.inventory import load_inventory
from fleet.engine.deploy.push import Push, PushOptions
from fleet.engine.lease.lease import Lease
from fleet.engine.pool import DeviceResult
from fleet.engine.session import Session
from fleet.engine.transfer.context import TransferOptions
from fleet.lab import Lab
from fleet.model.command import Command
from fleet.model.deadline import Deadline
from fleet.model.errors import (
    CancelledError,
    ConnectionLostError,
    LeaseLostError,
    UnreachableError,
)
from fleet.model.events import DeviceDone, Event, Progress, Relayed, Warned
from fleet.model.inventory import Host
from fleet.model.secret import SecretRef
from fleet.ops.lease import drop_command, parse_lease
from fleet.transport.neighbour import Agent, Bridge, can_bind, lacking, peer_of
from fleet.transport.ssh import SshTransport

MIB = 1 << 20
SIZE = 12 * MIB
STUCK_SECONDS = 120.0


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if why := lacking():
        pytest.skip(why)
    with Lab.up(tmp_path_factory.mktemp("lab"), count=4, kind="user", base_port=0) as one:
        yield one


@dataclass
class Desk:
    """Boards on one LAN, and a file that was on none of them."""

    lab: Lab
    hosts: list[Host]
    item: Path
    events: list[Event] = field(default_factory=list)
    hear: Callable[[Event], object] = lambda _: None

    def push(self, hosts: Sequence[Host], *, parallel: int = 16) -> list[DeviceResult[Any]]:
        def say(event: Event) -> None:
            self.events.append(event)
            self.hear(event)

        self.events.clear()
        transfer = TransferOptions(compress="never", relay=True)
        options = PushOptions(parallel=parallel, transfer=transfer)
        return Push("model", [self.item], hosts, say, options).push()

    @property
    def sha(self) -> str:
        return hashlib.sha256(self.item.read_bytes()).hexdigest()

    def store(self, host: Host) -> Path:
        return Path(self.lab.board(host.name).home) / "fleet" / "store"

    def stored(self, host: Host) -> str:
        return hashlib.sha256((self.store(host) / self.sha).read_bytes()).hexdigest()

    def of(self, kind: type[Event], host: Host | None = None) -> list[Event]:
        return [e for e in self.events if isinstance(e, kind) and (not host or e.host == host.name)]

    def said(self, host: Host | None = None) -> list[str]:
        """Warnings of the relay; others are of leases that an earlier test left."""
        texts = [e.text for e in self.of(Warned, host) if isinstance(e, Warned)]
        return [text for text in texts if "sent directly" in text]

    @property
    def left_overs(self) -> set[str]:
        """Names below the homes of the boards that no upload leaves there."""
        homes = [Path(self.lab.board(host.name).home) for host in self.hosts]
        files = [p for home in homes for p in home.rglob("*") if not p.is_dir()]
        words = ("known", "agent", "config", "id_", ".part", "ssh")
        return {p.name for p in files if any(word in p.name for word in words)}


def traces() -> set[tuple[str, int]]:
    """What ssh would leave: its sockets, and files of the user who logs in to these boards."""
    found = [*Path("/tmp").glob("ssh-*/agent.*"), *(Path.home() / ".ssh").glob("*")]
    return {(str(one), one.stat().st_mtime_ns) for one in found}


@pytest.fixture
def desk(lab: Lab, tmp_path: Path, request: pytest.FixtureRequest) -> Desk:
    hosts = [replace(one, labels={"lan": "desk"}) for one in load_inventory(lab.inventory).hosts]
    item = tmp_path / "model.bin"
    item.write_bytes(random.Random(request.node.name).randbytes(SIZE))
    return Desk(lab, hosts, item)


def test_the_workstation_sends_it_once(desk: Desk) -> None:
    before = traces()
    done = desk.push(desk.hosts)
    assert [one.outcome for one in done] == ["changed"] * 4
    assert sorted(one.bytes_sent for one in done) == [0, 0, 0, SIZE]
    assert sorted(one.bytes_relayed for one in done) == [0, SIZE, SIZE, SIZE]
    for one in done:
        assert desk.stored(one.host) == desk.sha
        relayed = [e.bytes for e in desk.of(Relayed, one.host) if isinstance(e, Relayed)]
        assert sum(relayed) == one.bytes_relayed
        last = [e for e in desk.of(Progress, one.host) if isinstance(e, Progress)][-1]
        assert last.done == last.total == SIZE
    assert desk.said() == []
    assert desk.left_overs == set()
    until(lambda: traces() <= before, "something stays")


def test_who_has_it_already_serves_and_a_part_is_gone_on_with(desk: Desk) -> None:
    first, second = desk.hosts[:2]
    desk.push([first])
    offset = 2 * MIB + 5
    desk.store(second).mkdir(parents=True, exist_ok=True)
    part = desk.store(second) / f"{desk.sha}.part"
    part.write_bytes(desk.item.read_bytes()[:offset])
    has, gets = desk.push([first, second], parallel=1)
    assert (has.outcome, has.bytes_sent) == ("unchanged", 0)
    assert (gets.bytes_sent, gets.bytes_relayed) == (0, SIZE - offset)
    assert desk.stored(second) == desk.sha
    assert not part.exists()


def test_a_damaged_blob_of_a_neighbour_is_refused(desk: Desk) -> None:
    first, second = desk.hosts[:2]

    def hear(event: Event) -> None:
        if isinstance(event, DeviceDone) and event.host == first.name:
            blob = desk.store(first) / desk.sha
            data = bytearray(blob.read_bytes())
            data[SIZE // 2] ^= 1
            blob.chmod(0o644)
            blob.write_bytes(data)

    desk.hear = hear
    _, gets = desk.push([first, second], parallel=1)
    assert (gets.outcome, gets.bytes_sent, gets.bytes_relayed) == ("changed", SIZE, 0)
    assert desk.stored(second) == desk.sha
    (warned,) = desk.said(second)
    assert "that board has a damaged copy" in warned
    assert desk.left_overs == set()


def test_a_relay_that_is_cut_costs_no_byte_that_arrived(desk: Desk) -> None:
    first, second = desk.hosts[:2]
    size = 40 * MIB  # behind the first piece and those that may go unasked there is more
    desk.item.write_bytes(random.Random(str(desk.item)).randbytes(size))
    cut: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, Progress) and event.host == second.name and not cut:
            cut.extend(serving(desk, second))
            for pid in cut:
                os.kill(int(pid), signal.SIGKILL)

    desk.hear = hear
    _, gets = desk.push([first, second], parallel=1)
    assert len(cut) == 1
    assert gets.outcome == "changed", gets.text
    assert 0 < gets.bytes_sent < size
    assert gets.bytes_relayed == 0
    assert desk.stored(second) == desk.sha
    (warned,) = desk.said(second)
    assert "the relay stopped" in warned
    assert desk.left_overs == set()


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> dict[str, Session]:
    """The sessions of the next push, by name."""
    found: dict[str, Session] = {}

    class Known(Session):
        def __init__(self, host: Host, *args: Any, **more: Any) -> None:
            super().__init__(host, *args, **more)
            found[host.name] = self

    monkeypatch.setattr("fleet.engine.pool.Session", Known)
    return found


def until(true: Callable[[], object], words: str) -> None:
    end = time.monotonic() + STUCK_SECONDS
    while not true():
        assert time.monotonic() < end, words
        time.sleep(0.02)


def in_mid_relay(desk: Desk, host: Host, do: Callable[[], object]) -> Callable[[Event], None]:
    """Does it when the first piece has gone; no leave for more is given meanwhile."""
    desk.item.write_bytes(random.Random(str(desk.item)).randbytes(40 * MIB))
    done: list[Event] = []

    def hear(event: Event) -> None:
        if isinstance(event, Progress) and event.host == host.name and not done:
            done.append(event)
            do()

    return hear


def test_a_lease_that_is_lost_ends_the_relay(desk: Desk, sessions: dict[str, Session]) -> None:
    """The bytes do not come from here; they end all the same when another has the board."""
    first, second = desk.hosts[:2]

    def lose() -> None:
        other = SshTransport(second)
        other.open(Deadline(30))
        drop = drop_command("another", "", "-", force=True)
        assert parse_lease(other.run(drop, Deadline(30)).text, second.name).dropped
        other.close()
        lease = sessions[second.name].lease
        assert isinstance(lease, Lease)
        lease._wake.set()  # its renewal is due
        until(lambda: lease.gone, "the loss is not seen")

    desk.hear = in_mid_relay(desk, second, lose)
    has, gets = desk.push([first, second], parallel=1)
    assert has.outcome == "changed"
    assert isinstance(gets.error, LeaseLostError), gets.error
    assert not (desk.store(second) / desk.sha).exists()
    until(lambda: not serving(desk, second), "the neighbour still sends")


def test_a_cancelled_push_ends_the_relay(desk: Desk, sessions: dict[str, Session]) -> None:
    first, second = desk.hosts[:2]

    def cancel() -> None:
        sessions[second.name].cancel()

    desk.hear = in_mid_relay(desk, second, cancel)
    _, gets = desk.push([first, second], parallel=1)
    assert isinstance(gets.error, CancelledError), gets.error
    assert not (desk.store(second) / desk.sha).exists()
    until(lambda: not serving(desk, second), "the neighbour still sends")


def test_a_board_that_no_neighbour_can_log_in_to_is_served_directly(desk: Desk) -> None:
    """One is not there under its LAN address; under that of the other another board answers."""
    first, away, wrong, other = desk.hosts
    port = desk.lab.board(other.name).port
    away = replace(away, labels={"lan": "desk", "lan_address": "127.0.0.1:1"})
    wrong = replace(wrong, labels={"lan": "desk", "lan_address": f"127.0.0.1:{port}"})
    done = desk.push([first, away, wrong], parallel=1)
    assert [(one.outcome, one.bytes_sent) for one in done] == [("changed", SIZE)] * 3
    assert desk.said(first) == []
    (warned,) = desk.said(away)
    assert "the login failed" in warned
    assert "refused" in warned
    (warned,) = desk.said(wrong)
    assert "verification failed" in warned
    assert not (desk.store(other) / desk.sha).exists()


def test_who_takes_no_part_is_told_why_once(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "id"
    key.write_bytes(desk.lab.folder.identity_file.read_bytes())
    key.chmod(0o600)
    argv = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(key)]
    subprocess.run(argv, check=True, timeout=30, capture_output=True)
    monkeypatch.setenv("LAB_PASSPHRASE", "secret")
    secret = SecretRef("env:LAB_PASSPHRASE", tmp_path)
    nowhere = replace(desk.hosts[0], labels={})
    secretive = replace(desk.hosts[1], identity_files=(key,), key_passphrase=secret)
    done = desk.push([nowhere, secretive])
    assert [(one.outcome, one.bytes_sent) for one in done] == [("changed", SIZE)] * 2
    (warned,) = desk.said(nowhere)
    assert "no label `lan`" in warned
    (warned,) = desk.said(secretive)
    assert "password or passphrase" in warned


@pytest.fixture
def links(desk: Desk) -> Iterator[list[SshTransport]]:
    opened = [SshTransport(host) for host in desk.hosts[:3]]
    for one in opened:
        one.open(Deadline(30))
    yield opened
    for one in opened:
        one.close()


def login(links: list[SshTransport], desk: Desk, number: int) -> Command:
    """What an attacker on the source would run: ssh to a board with the agent that is there."""
    peer = peer_of(links[number], desk.hosts[number])
    options = ("BatchMode=yes", "IdentityFile=none", "StrictHostKeyChecking=no")
    files = ("UserKnownHostsFile=/dev/null", "GlobalKnownHostsFile=/dev/null", "LogLevel=ERROR")
    words = [word for one in (*options, *files) for word in ("-o", one)]
    way = ("-p", str(peer.port), "-l", peer.user, peer.address)
    return Command(("ssh", "-F", "/dev/null", *words, *way, "echo inside"))


def test_the_key_opens_one_board_and_no_other(desk: Desk, links: list[SshTransport]) -> None:
    """All boards would let this key in; from the source it is good for the target alone."""
    source, target, _ = (
        peer_of(link, host) for link, host in zip(links, desk.hosts[:3], strict=True)
    )
    with Bridge(source, links[0].traffic) as bridge:
        bridge.lend(target)
        listed = bridge.run(Command(("ssh-add", "-l")), Deadline(30))
        assert len(listed.text.splitlines()) == 1, "it sees the key"
        into_target = bridge.run(login(links, desk, 1), Deadline(30))
        assert (into_target.status, into_target.text) == (0, "inside\n"), into_target.error_text
        for other in (2, 0):
            with pytest.raises(ConnectionLostError, match="Permission denied"):  # status 255
                bridge.run(login(links, desk, other), Deadline(30))
        bridge.admitted()  # it is there for a login, not for a transfer
        with pytest.raises(ConnectionLostError, match="Permission denied"):
            bridge.run(login(links, desk, 1), Deadline(30))


def test_a_killed_workstation_leaves_no_agent(desk: Desk, tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from fleet.model.deadline import Deadline\n"
        "from fleet.transport.neighbour import Agent\n"
        "agent = Agent(Deadline(30))\n"
        "line = sys.argv[2]\n"
        "agent.add([sys.argv[1]], line, line, 'ubuntu', Deadline(60))\n"
        "print(agent.socket, flush=True)\n"
        "time.sleep(600)\n"
    )
    line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKuS1UR4X0L91EGuiNbgVNiZTB6+/c7Ou1aD7YWp/BJE"
    argv = [sys.executable, "-c", program, str(desk.lab.folder.identity_file), line]
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    try:
        assert process.stdout is not None
        socket = process.stdout.readline().strip()
        assert socket, "it has begun"
        assert running(socket)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close() if process.stdout else None
    until(
        lambda: not running(socket) and not Path(socket).parent.exists(),
        "the agent is still there",
    )


def running(word: str) -> list[str]:
    """Processes with this word in their command line."""
    found = []
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = one.read_bytes()
        except OSError:
            continue
        if word.encode() in text:
            found.append(one.parent.name)
    return found


def serving(desk: Desk, target: Host) -> list[str]:
    """The ssh clients on other boards that send to this one."""
    port = desk.lab.board(target.name).port
    return running(f"HostKeyAlias=fleet-neighbour\0-p\0{port}\0")


def test_ssh_add_says_why_it_cannot(tmp_path: Path) -> None:
    if why := lacking():
        pytest.skip(why)
    agent = Agent(Deadline(30))
    line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKuS1UR4X0L91EGuiNbgVNiZTB6+/c7Ou1aD7YWp/BJE"
    try:
        with pytest.raises(UnreachableError, match="cannot load the key"):
            agent.add([str(tmp_path / "none")], line, line, "ubuntu", Deadline(30))
        with pytest.raises(UnreachableError, match="cannot restrict a key to the user"):
            agent.add([], line, line, "a>b@c*", Deadline(30))
    finally:
        agent.close()
    assert not agent.socket.parent.exists()


@pytest.mark.parametrize(
    ("version", "can"),
    [
        ("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u10", True),
        ("SSH-2.0-OpenSSH_8.9p1 Ubuntu-3", True),
        ("SSH-2.0-OpenSSH_10.0p2", True),
        ("OpenSSH_for_Windows_9.5p1, LibreSSL 3.8.2", True),
        ("SSH-2.0-OpenSSH_8.8", False),
        ("SSH-2.0-OpenSSH_7.6p1", False),
        ("SSH-2.0-dropbear_2022.83", False),
        ("", False),
    ],
)
def test_which_servers_bind_keys(version: str, can: bool) -> None:
    assert can_bind(version) is can
