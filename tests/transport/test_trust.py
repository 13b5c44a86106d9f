"""What may be pinned, and what is left in known_hosts, against a real OpenSSH server."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.model.deadline import Deadline
from fleet.model.errors import HostKeyError, InputError
from fleet.model.inventory import Host
from fleet.transport import hostkeys, trustlog
from fleet.transport.ssh import SshTransport
from fleet.transport.trust import check_offer, offered_key, trust_host

from .sshd import Sshd, make_key, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running(tmp_path_factory.mktemp("sshd")) as one:
        yield one


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(hostkeys, "USER_KNOWN_HOSTS", tmp_path / "user_known_hosts")
    return tmp_path


def stale(folder: Path) -> str:
    folder.mkdir(exist_ok=True)
    make_key(folder / "stale")
    return " ".join((folder / "stale.pub").read_text().split()[:2])


def name_of(server: Sshd) -> str:
    return f"[127.0.0.1]:{server.port}"


def connects(host: Host) -> None:
    link = SshTransport(host)
    link.open(Deadline(10))
    link.close()


@pytest.mark.parametrize("where", ["user_known_hosts", "own"])
def test_a_revoked_key_is_not_offered_for_trust(server: Sshd, home: Path, where: str) -> None:
    key = (server.folder / "host.pub").read_text()
    host = server.host(known_hosts=home / "own")
    (home / where).write_text(f"@revoked * {key}")
    with pytest.raises(HostKeyError, match="revoked"):
        offered_key(host)


@pytest.mark.parametrize("where", ["user_known_hosts", "own"])
def test_a_key_that_was_pinned_and_then_revoked_is_refused(
    server: Sshd, home: Path, where: str
) -> None:
    host = server.host(known_hosts=home / "own")
    trust_host(host, offered_key(host))
    connects(host)
    with (home / where).open("a") as stream:
        stream.write("@revoked * " + (server.folder / "host.pub").read_text())
    with pytest.raises(HostKeyError, match="revoked"):
        connects(host)


@pytest.mark.parametrize("accept_new", [False, True])
def test_another_key_in_the_place_of_a_revoked_one_is_a_change(
    server: Sshd, home: Path, accept_new: bool
) -> None:
    old, own = stale(home), home / "own"
    own.write_text(f"{name_of(server)} {old}\n@revoked * {old}\n")
    host = server.host(known_hosts=own)
    with pytest.raises(HostKeyError, match="CHANGED"):
        SshTransport(host, accept_new=accept_new).open(Deadline(10))
    offer = offered_key(host)
    with pytest.raises(InputError, match="host key changed"):
        check_offer(host, offer, reflashed=False)
    trust_host(host, offer)
    connects(host)


@pytest.mark.parametrize("reflashed", [False, True])
def test_a_pin_of_the_inventory_is_corrected_there(
    server: Sshd, home: Path, reflashed: bool
) -> None:
    host = server.host(known_hosts=home / "own", host_key="SHA256:" + "A" * 43)
    offer = offered_key(host)
    assert offer.pinned == host.host_key
    with pytest.raises(HostKeyError, match="CHANGED") as caught:
        check_offer(host, offer, reflashed=reflashed)
    assert "host_key" in caught.value.hint
    assert "--reflashed" not in caught.value.hint


def test_a_new_pin_leaves_no_older_key_and_touches_nothing_else(server: Sshd, home: Path) -> None:
    own, old, name = home / "own", stale(home), name_of(server)
    hashed = home / "hashed"
    hashed.write_text(f"{name} {old}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(hashed)], check=True, capture_output=True)
    assert name not in hashed.read_text()
    others = [
        f"# {name} note",
        "",
        f"[127.0.0.1]:1 {old}",
        "|1|broken",
        f"@revoked x {stale(home / 'away')}",
    ]
    mine = [hashed.read_text().strip(), f" {name}\t{old}", f"evk,{name} {old}"]
    own.write_bytes("\n".join([*others, *mine]).encode() + b"\n\xff comment\n")
    own.chmod(0o600)
    host = server.host(known_hosts=own)
    offer = offered_key(host)
    with pytest.raises(InputError, match="host key changed"):
        check_offer(host, offer, reflashed=False)
    check_offer(host, offer, reflashed=True)
    trust_host(host, offer)
    connects(host)
    left = own.read_bytes().split(b"\n")
    assert [one.encode() for one in others if one] == left[:4]
    assert left[4:6] == [f"evk {old}".encode(), b"\xff comment"]
    assert left[6].startswith(f"{name} ssh-ed25519 ".encode())
    assert own.stat().st_mode & 0o777 == 0o600


def test_two_names_of_one_board_are_both_accepted(server: Sshd, home: Path) -> None:
    """The second one began while nothing was pinned."""
    links = [
        SshTransport(server.host(name=name, known_hosts=home / "own"), accept_new=True)
        for name in ("evk", "evk-by-another-name")
    ]
    opened = [link.connection(10) for link in links]
    for one in opened:
        one.open()
    for link in links:
        link.close()
    assert (home / "own").read_text().count("\n") == 1
    assert [line.host for line in trustlog.read(home / "own.log")] == ["evk"]


def test_many_names_of_one_board_at_once(server: Sshd, home: Path) -> None:
    hosts = [server.host(name=f"evk-{n}", known_hosts=home / "own") for n in range(12)]
    wrong: list[Exception] = []

    def work(host: Host) -> None:
        link = SshTransport(host, accept_new=True)
        try:
            link.open(Deadline(30))
        except Exception as error:  # noqa: BLE001 - shown below
            wrong.append(error)
        finally:
            link.close()

    threads = [threading.Thread(target=work, args=(host,)) for host in hosts]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert wrong == []
    assert (home / "own").read_text().count("\n") == 1
    assert len(trustlog.read(home / "own.log")) == 1


def test_a_key_that_was_pinned_meanwhile_is_not_overruled(server: Sshd, home: Path) -> None:
    """The other one is pinned while this one waits for the file."""
    own = home / "own"
    host = server.host(known_hosts=own)
    key = offered_key(host).key
    wrong: list[HostKeyError] = []

    def work() -> None:
        try:
            hostkeys.Policy(host, accept_new=True).missing_host_key(None, name_of(server), key)  # type: ignore[arg-type]
        except HostKeyError as error:
            wrong.append(error)

    with hostkeys.locked(own):
        other = threading.Thread(target=work)
        other.start()
        other.join(0.2)
        own.write_text(f"{name_of(server)} {stale(home)}\n")
    other.join(60)
    assert len(wrong) == 1
    assert "CHANGED" in str(wrong[0])
    assert own.read_text().count("\n") == 1


def test_a_link_to_known_hosts_stays_a_link(server: Sshd, home: Path) -> None:
    (home / "shared").write_text("")
    (home / "own").symlink_to("shared")
    host = server.host(known_hosts=home / "own")
    trust_host(host, offered_key(host))
    assert (home / "own").is_symlink()
    assert name_of(server) in (home / "shared").read_text()


def test_nothing_is_pinned_that_cannot_be_noted(server: Sshd, home: Path) -> None:
    host = server.host(known_hosts=home / "own")
    (home / "own.log").mkdir()
    with pytest.raises(InputError, match=r"cannot write .*own\.log"):
        trust_host(host, offered_key(host))
    assert not (home / "own").exists()
    with pytest.raises(InputError, match="cannot write"):
        SshTransport(host, accept_new=True).open(Deadline(10))
    assert not (home / "own").exists()


def test_a_folder_that_is_a_file_is_named(server: Sshd, home: Path) -> None:
    (home / "file").write_text("")
    host = server.host(known_hosts=home / "file" / "own")
    with pytest.raises(InputError, match="cannot write"):
        trust_host(host, offered_key(host))


def note(host: Host, new: str) -> None:
    trustlog.note(host, address="a", kind="k", old="", new=new, why=trustlog.NEW)


def test_a_line_after_one_that_was_cut_off_is_whole(home: Path) -> None:
    host = Host("evk", known_hosts=home / "own")
    note(host, "one")
    path = trustlog.log_path(host)
    path.write_bytes(path.read_bytes() + b'{"time": "20')
    note(host, "two")
    with pytest.raises(InputError, match=r"line 2 of .*own\.log, .* is damaged"):
        trustlog.read(path)
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], b"", *lines[2:]]))
    assert [one.new for one in trustlog.read(path)] == ["one", "two"]


def test_bytes_that_are_no_text_are_named_with_their_line(home: Path) -> None:
    (home / "log").write_bytes(b"\xff\xfe\n")
    with pytest.raises(InputError, match=r"line 1 of .*log, .* is damaged"):
        trustlog.read(home / "log")


def test_many_writers_lose_no_line(home: Path) -> None:
    host = Host("ü\u2028 '\n", known_hosts=home / "deep" / "own")

    def work(worker: int) -> None:
        for turn in range(25):
            note(host, f"{worker}-{turn}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    found = trustlog.read(trustlog.log_path(host))
    assert {one.new for one in found} == {f"{w}-{t}" for w in range(8) for t in range(25)}
    assert len(found) == 200
    assert {one.host for one in found} == {host.name}
