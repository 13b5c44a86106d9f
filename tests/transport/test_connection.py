"""The way to a host, as the inventory and an ssh config have it, against real OpenSSH servers."""

from __future__ import annotations

import gc
import getpass
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.model.command import script
from fleet.model.deadline import Deadline
from fleet.model.errors import FleetError, InputError, UnreachableError
from fleet.model.inventory import Host
from fleet.model.secret import Secret, SecretRef
from fleet.transport import connection
from fleet.transport.ssh import SshTransport

from .sshd import Sshd, free_port, running

ME = getpass.getuser()
# `nc` for machines that have none: standard input and output ↔ a port.
NC = """
import os, select, socket, sys
far = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    for ready in select.select([0, far], [], [])[0]:
        data = os.read(0, 65536) if ready == 0 else far.recv(65536)
        if not data:
            sys.exit()
        far.sendall(data) if ready == 0 else os.write(1, data)
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only ssh config that there is."""
    path = tmp_path / "config"
    monkeypatch.setattr(connection, "CONFIGS", (str(path), str(tmp_path / "none")))
    return path


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sshd, Sshd, Sshd]]:
    """Two jump hosts and a board; each takes only its own key."""
    folder = tmp_path_factory.mktemp("way")
    with (
        running(folder / "a", "LogLevel=VERBOSE") as near,
        running(folder / "b", "LogLevel=VERBOSE") as far,
        running(folder / "c", "LogLevel=VERBOSE") as board,
    ):
        known = "".join(server.known_hosts.read_text() for server in (near, far, board))
        board.known_hosts.write_text(known)
        yield near, far, board


def alias(name: str, server: Sshd, *lines: str) -> str:
    said = (
        "HostName 127.0.0.1",
        f"Port {server.port}",
        f"User {ME}",
        f"IdentityFile {server.identity}",
        *lines,
    )
    return "\n".join((f"Host {name}", *(f"  {line}" for line in said))) + "\n"


def by_alias(board: Sshd, config: Path, **changes: object) -> Host:
    values: dict[str, object] = {"address": "board", "known_hosts": board.known_hosts, **changes}
    return Host("b", ssh_config=config, connect_timeout=10.0, **values)  # type: ignore[arg-type]


def ports(link: SshTransport) -> list[int]:
    return [hop.port for hop in link.hops()]


def reached(host: Host) -> list[int]:
    """The ports of the hops over which a command was run, the board last."""
    link = SshTransport(host)
    try:
        link.open(Deadline(20))
        assert link.run(script("exit 3"), Deadline(10)).status == 3
        return ports(link)
    finally:
        link.close()


def resolved(host: Host) -> tuple[str, int, str, object]:
    found = SshTransport(host).connection(5.0)
    return found.host, found.port, found.user, found.options.get("key_filename")


SILENT = (
    "",
    "# a comment\n",
    "Host *\n  SendEnv LANG LC_*\n  HashKnownHosts yes\n  GSSAPIAuthentication yes\n",
    "Host other\n  HostName 10.0.0.9\n  User root\n  ProxyJump hop\n",
    "Host *\n  ServerAliveInterval 20\nHost 10.0.0.8\n  Port 2222\n",
    "Host *\n  ForwardAgent yes\n  ConnectTimeout 3\n",
    "Host *\n  ForwardAgent ~/agent\n",
    "Host *\n  ProxyJump none\n  ProxyCommand nc %h %p\n",
    "Host *\n  ProxyCommand none\n  ProxyJump hop\n",
    "Include other\nHost *\n",
)
HEEDED = {
    "User evk": ("10.0.0.7", 22, "evk", None),
    "Port 2222": ("10.0.0.7", 2222, ME, None),
    "Port=2222": ("10.0.0.7", 2222, ME, None),
    "HostName 10.0.0.9": ("10.0.0.9", 22, ME, None),
    "HostName %h.lab": ("10.0.0.7.lab", 22, ME, None),
    "IdentityFile /keys/%h": ("10.0.0.7", 22, ME, ["/keys/10.0.0.7"]),
}


@pytest.mark.parametrize("text", SILENT)
def test_a_config_that_says_nothing(config: Path, text: str) -> None:
    config.write_text(text)
    for host in (Host("b", address="10.0.0.7"), Host("b", address="10.0.0.7", ssh_config=config)):
        found = SshTransport(host).connection(5.0)
        assert resolved(host) == ("10.0.0.7", 22, ME, None)
        assert found.gateway is None


@pytest.mark.parametrize("line", HEEDED)
@pytest.mark.parametrize("where", ["*", "10.0.*", "10.0.0.7"])
def test_a_config_that_has_a_say(config: Path, where: str, line: str) -> None:
    config.write_text(f"Host {where}\n  {line}\n")
    assert resolved(Host("b", address="10.0.0.7")) == HEEDED[line]
    assert resolved(Host("b", address="10.0.0.7", ssh_config=config)) == HEEDED[line]


def test_the_inventory_wins_and_keys_are_added(config: Path) -> None:
    config.write_text("Host *\n  User evk\n  Port 2222\n  IdentityFile /theirs\n")
    host = Host("b", address="h", user="me", port=22, identity_files=(Path("/ours"),))
    assert resolved(host) == ("h", 22, "me", ["/ours", "/theirs"])


def test_the_users_config_wins_over_the_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, systems = tmp_path / "users", tmp_path / "systems"
    users.write_text("Host *\n  User mine\n")
    systems.write_text("Host *\n  User theirs\n  Port 2222\n")
    monkeypatch.setattr(connection, "CONFIGS", (str(users), str(systems)))
    assert resolved(Host("b", address="h")) == ("h", 2222, "mine", None)
    assert resolved(Host("b", address="h", ssh_config=users)) == ("h", 22, "mine", None)


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("root@10.0.0.7", ("10.0.0.7", 22, "root", None)),
        ("10.0.0.7:2222", ("10.0.0.7", 2222, ME, None)),
        ("fe80::1", ("fe80::1", 22, ME, None)),
        ("[fe80::1]:2222", ("fe80::1", 2222, ME, None)),
    ],
)
def test_user_and_port_in_the_address(
    config: Path, address: str, found: tuple[str, int, str, None]
) -> None:
    assert resolved(Host("b", address=address)) == found


def test_a_config_is_read_again_when_it_changed(config: Path) -> None:
    config.write_text("")
    assert resolved(Host("b", address="h"))[2] == ME
    config.write_text("Host *\n  User evk\n")
    assert resolved(Host("b", address="h"))[2] == "evk"


@pytest.mark.parametrize("text", ["odd\n", "Host *\n  Port many\n", "Match host\n", "Host 'a\n"])
def test_an_odd_config_is_named(config: Path, text: str) -> None:
    config.write_text(text)
    with pytest.raises(InputError, match="ssh config"):
        SshTransport(Host("b", address="h", ssh_config=config)).open(Deadline(5))


def test_a_config_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gone"):
        SshTransport(Host("b", address="h", ssh_config=tmp_path / "gone")).open(Deadline(5))


def test_match_of_host_and_user(config: Path) -> None:
    config.write_text(
        "Match host evk1,evk3\n  Port 2222\n"
        "Match originalhost evk1 user root\n  IdentityFile /roots\n"
        "Match host other\n  Port 1\n"
    )
    assert resolved(Host("b", address="evk1")) == (
        "evk1",
        2222,
        ME,
        None if ME != "root" else ["/roots"],
    )
    assert resolved(Host("b", address="evk2"))[1] == 22
    assert resolved(Host("b", address="evk1", user="root"))[3] == ["/roots"]
    assert resolved(Host("b", address="evk1", user="other"))[3] is None


@pytest.mark.parametrize(
    "text",
    [
        'Host evk  # on the desk\n  HostName 10.0.0.5 # by cable\n  Port 22\t# 7\n  User "a"  #\n',
        'Host evk\n  IdentityFile "/keys/a#b"  # old\n  User me#2\n',
        "Host evk\n  ProxyCommand nc %h %p  # 2\n  ProxyJump hop\n",
        "Match Host evk2\n  User root\nMATCH HOST evk\n  Port 2222\n",
        "Match final all\n  User root\nMatch exec 'true' # yes\n  Port 2222\n",
        "Match !host evk,evk2\n  User root\nMatch=user root\n  Port 2222\n",
        "Host evk\n  ProxyJump ssh://u@hop:2222\n",
    ],
)
def test_lines_that_paramiko_alone_reads_otherwise_than_ssh(config: Path, text: str) -> None:
    config.write_text(text)
    argv = ["ssh", "-G", "-F", str(config), "evk"]
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    theirs = dict(line.split(" ", 1) for line in said.splitlines() if " " in line)
    found = SshTransport(Host("b", address="evk", ssh_config=config)).connection(5.0)
    have = (found.host, str(found.port), found.user)
    assert have == (theirs["hostname"], theirs["port"], theirs["user"])
    assert [theirs["identityfile"]] == found.options.get("key_filename", [theirs["identityfile"]])
    hop = found.gateway
    jump = f"{hop.user}@{hop.host}:{hop.port}" if isinstance(hop, connection.Connection) else None
    assert jump == theirs.get("proxyjump", "").removeprefix("ssh://") or jump is None
    command = theirs.get("proxycommand", "").replace("%h", "evk").replace("%p", "22")
    assert (hop if isinstance(hop, str) else "") == command


def test_a_criterion_that_is_not_known_is_named(config: Path) -> None:
    config.write_text("Match localnetwork 10.0.0.0/8\n  ProxyJump hop\n")
    with pytest.raises(InputError, match="'Match localnetwork'"):
        SshTransport(Host("b", address="evk", ssh_config=config)).connection(5.0)


def test_a_key_of_the_config_that_is_not_there_is_left_out(
    servers: tuple[Sshd, Sshd, Sshd], config: Path, tmp_path: Path
) -> None:
    board = servers[2]
    config.write_text(f"IdentityFile {tmp_path}/none\n{alias('board', board)}")
    assert reached(by_alias(board, config)) == [board.port]
    absent = by_alias(board, config, identity_files=(tmp_path / "other",))
    with pytest.raises(InputError, match=r"the key file .*other does not exist"):
        reached(absent)


def test_jump_hosts_of_a_config_in_their_order(
    servers: tuple[Sshd, Sshd, Sshd], config: Path
) -> None:
    near, far, board = servers
    jumps = "ProxyJump near,far"
    config.write_text(alias("near", near) + alias("far", far) + alias("board", board, jumps))
    assert reached(by_alias(board, config)) == [near.port, far.port, board.port]


def test_a_jump_host_has_a_jump_host_of_its_own(
    servers: tuple[Sshd, Sshd, Sshd], config: Path
) -> None:
    near, far, board = servers
    hops = alias("near", near) + alias("far", far, "ProxyJump near")
    config.write_text(hops + alias("board", board, "ProxyJump far"))
    way = [near.port, far.port, board.port]
    assert reached(by_alias(board, config)) == way
    config.write_text(hops + alias("board", board))
    assert reached(by_alias(board, config, proxy_jump="far")) == way


def test_jump_hosts_of_the_inventory_in_their_order(
    servers: tuple[Sshd, Sshd, Sshd], config: Path
) -> None:
    near, far, board = servers
    keys = tuple(server.identity for server in servers)
    hops = f"{ME}@127.0.0.1:{near.port},{ME}@127.0.0.1:{far.port}"
    host = board.host(identity_files=keys, proxy_jump=hops)
    assert reached(host) == [near.port, far.port, board.port]


def test_a_jump_host_that_all_hosts_have_is_not_its_own(
    servers: tuple[Sshd, Sshd, Sshd], config: Path
) -> None:
    near, _, board = servers
    both = alias("near", near) + alias("board", board)
    config.write_text(both + "Host *\n  ProxyJump near\n")
    assert reached(by_alias(board, config)) == [near.port, board.port]


def test_jump_hosts_that_go_round_are_named(config: Path) -> None:
    config.write_text("Host a\n  ProxyJump b\nHost b\n  ProxyJump c\nHost c\n  ProxyJump b\n")
    with pytest.raises(InputError, match="form a loop"):
        SshTransport(Host("h", address="a", ssh_config=config)).open(Deadline(5))


def test_a_proxy_command_is_told_host_port_and_user(
    servers: tuple[Sshd, Sshd, Sshd], config: Path, tmp_path: Path
) -> None:
    board = servers[2]
    note = f"import sys\nopen({str(tmp_path / 'user')!r}, 'w').write(sys.argv[3])\n"
    (tmp_path / "nc.py").write_text(note + NC)
    command = shlex.join([sys.executable, str(tmp_path / "nc.py")])
    config.write_text(
        f"Host board\n  HostName 127.0.0.1\n  IdentityFile {board.identity}\n"
        f"  ProxyCommand {command} %h %p %r\n"
    )
    # The port is the inventory's, and the command is told it.
    assert reached(by_alias(board, config, port=board.port, user=ME)) == [board.port]
    assert (tmp_path / "user").read_text() == ME
    gc.collect()  # a process or a pipe that is left is a warning, and those are errors


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("/nowhere/prog %h %p", "the program does not exist"),
        ("no-such-program-at-all", "the program does not exist"),
        ("exec nc %h %p", "the program does not exist"),
        ("nc '%h", "No closing quotation"),
    ],
)
def test_a_proxy_command_that_cannot_be_started_is_named(
    servers: tuple[Sshd, Sshd, Sshd], config: Path, command: str, why: str
) -> None:
    board = servers[2]
    config.write_text(f"Host board\n  HostName 127.0.0.1\n  ProxyCommand {command}\n")
    with pytest.raises(
        InputError, match=r"the ProxyCommand `.*` of the ssh config cannot"
    ) as caught:
        reached(by_alias(board, config))
    assert command.split(maxsplit=1)[0] in caught.value.message
    assert why in caught.value.message


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("false", "exit status 1"),
        ("sh -c 'echo first >&2; echo bastion: no entry >&2; exit 7'", "bastion: no entry"),
    ],
)
def test_a_proxy_command_that_ends_is_named_with_its_words(
    servers: tuple[Sshd, Sshd, Sshd], config: Path, command: str, why: str
) -> None:
    board = servers[2]
    config.write_text(f"Host board\n  HostName 127.0.0.1\n  ProxyCommand {command}\n")
    with pytest.raises(
        UnreachableError, match=r"the ProxyCommand `.*` of the ssh config ended"
    ) as e:
        reached(by_alias(board, config))
    assert e.value.message.endswith(why)
    gc.collect()  # a process or a pipe that is left is a warning, and those are errors


@pytest.mark.parametrize("first", ["ProxyJump", "ProxyCommand"])
def test_of_a_jump_host_and_a_proxy_command_the_first_counts(config: Path, first: str) -> None:
    lines = {"ProxyJump": "  ProxyJump hop\n", "ProxyCommand": "  ProxyCommand nc %h\n"}
    config.write_text(f"Host *\n{lines.pop(first)}{''.join(lines.values())}")
    found = SshTransport(Host("b", address="h")).connection(5.0)
    assert isinstance(found.gateway, str) == (first == "ProxyCommand")


def test_each_hop_has_the_time_of_the_inventory(config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        hop = f"Host silent\n  HostName 127.0.0.1\n  Port {port}\n  ConnectTimeout 60\n"
        config.write_text(hop + "Host board\n  ProxyJump silent\n")
        host = Host("b", address="board", ssh_config=config, connect_timeout=1)
        with pytest.raises(UnreachableError):
            SshTransport(host).open(Deadline(30))


def test_a_closed_port_behind_a_jump_host_is_named(
    servers: tuple[Sshd, Sshd, Sshd], config: Path
) -> None:
    near, _, board = servers
    there = f"Host board\n  HostName 127.0.0.1\n  Port {free_port()}\n  ProxyJump near\n"
    config.write_text(alias("near", near) + there)
    with pytest.raises(UnreachableError, match="jump host could not connect"):
        SshTransport(by_alias(board, config)).open(Deadline(20))


def test_no_agent_goes_to_a_board(servers: tuple[Sshd, Sshd, Sshd], config: Path) -> None:
    board = servers[2]
    config.write_text(alias("board", board, "ForwardAgent yes"))
    link = SshTransport(by_alias(board, config))
    link.open(Deadline(20))
    found = link.run(script('printf %s "${SSH_AUTH_SOCK-}"'), Deadline(10))
    link.close()
    assert found.stdout == b""


@pytest.mark.parametrize("jump", [False, True])
def test_a_passphrase_opens_the_keys_of_the_inventory(
    servers: tuple[Sshd, Sshd, Sshd], tmp_path: Path, *, jump: bool
) -> None:
    near, _, board = servers
    keys = []
    for number, server in enumerate((near, board)):
        key = tmp_path / f"key{number}"
        key.write_bytes(server.identity.read_bytes())
        key.chmod(0o600)
        change = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "open sesame", "-f", str(key)]
        subprocess.run(change, check=True, timeout=20)
        keys.append(key)
    host = board.host(
        identity_files=tuple(keys),
        key_passphrase=SecretRef("literal", tmp_path, Secret("open sesame")),
        proxy_jump=f"{ME}@127.0.0.1:{near.port}" if jump else "",
    )
    assert reached(host) == ([near.port] if jump else []) + [board.port]
    with pytest.raises(FleetError, match="encrypted"):
        SshTransport(replace(host, key_passphrase=None)).open(Deadline(20))


def test_the_password_is_for_the_board_alone(config: Path, tmp_path: Path) -> None:
    password = SecretRef("literal", tmp_path, Secret("canary"))
    config.write_text("Host c\n  ProxyJump d\n")
    host = Host("b", address="h", password=password, proxy_jump="c", ssh_config=config)
    found = SshTransport(host).connection(5.0)
    assert found.options["password"] == "canary"
    hop = found.gateway
    assert hop is not None
    assert not isinstance(hop, str)
    assert isinstance(hop.gateway, type(hop))
    assert not {"password"} & {*hop.options, *hop.gateway.options}


def in_a_new_python(*lines: str) -> None:
    """This one may have imported what is asked about."""
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_paramiko_knows_its_version() -> None:
    lines = (
        "import sys",
        "from fleet.model.inventory import Host",
        "from fleet.transport import transport_for",
        "transport_for(Host('b', address='evk'))",
        "import paramiko",
        "from importlib.metadata import version",
        "assert paramiko.__version__ == version('paramiko'), paramiko.__version__",
    )
    in_a_new_python(*lines)


def test_match_exec_runs_as_in_ssh(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text('Match exec "true"\n  HostName 127.0.0.1\n  Port 1\n  User me\n')
    lines = (
        "import sys",
        "from pathlib import Path",
        "from fleet.model.inventory import Host",
        "from fleet.transport import transport_for",
        f"link = transport_for(Host('b', address='evk', ssh_config=Path({str(config)!r})))",
        "found = link.connection(5.0)",
        "assert (found.host, found.port, found.user) == ('127.0.0.1', 1, 'me'), found",
    )
    in_a_new_python(*lines)


def test_a_jump_host_needs_no_fabric(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host evk\n  ProxyJump hop\n")
    lines = (
        "import sys",
        "from pathlib import Path",
        "from fleet.model.inventory import Host",
        "from fleet.transport import transport_for",
        f"link = transport_for(Host('b', address='evk', ssh_config=Path({str(config)!r})))",
        "assert link.connection(5.0).gateway.host == 'hop'",
        "assert not {'fabric'} & set(sys.modules)",
    )
    in_a_new_python(*lines)
