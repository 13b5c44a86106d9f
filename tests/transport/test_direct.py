"""Who needs fabric: hosts of an ssh config or behind a jump host, and nobody else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fleet.model.deadline import Deadline
from fleet.model.inventory import Host
from fleet.transport import direct
from fleet.transport.direct import Direct, is_direct
from fleet.transport.ssh import SshTransport

from .sshd import running


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only ssh config that there is."""
    path = tmp_path / "config"
    monkeypatch.setattr(direct, "_CONFIGS", (str(path), str(tmp_path / "none")))
    return path


SILENT = (
    "",
    "# a comment\n",
    "Host *\n  SendEnv LANG LC_*\n  HashKnownHosts yes\n  GSSAPIAuthentication yes\n",
    "Host other\n  HostName 10.0.0.9\n  User root\n  ProxyJump hop\n",
    "Host *\n  ServerAliveInterval 20\nHost 10.0.0.8\n  Port 2222\n",
)
HEEDED = (
    "User root",
    "Port 2222",
    "HostName 10.0.0.9",
    "IdentityFile ~/.ssh/other",
    "ProxyJump hop",
    "ProxyCommand nc %h %p",
    "ConnectTimeout 3",
    "ForwardAgent yes",
)


@pytest.mark.parametrize("text", SILENT)
def test_a_config_that_says_nothing(config: Path, text: str) -> None:
    config.write_text(text)
    assert is_direct(Host("b", address="10.0.0.7"))
    assert is_direct(Host("b", address="10.0.0.7", ssh_config=config))


@pytest.mark.parametrize("line", HEEDED)
@pytest.mark.parametrize("where", ["*", "10.0.*", "10.0.0.7"])
def test_a_config_that_has_a_say(config: Path, where: str, line: str) -> None:
    config.write_text(f"Host {where}\n  {line}\n")
    assert not is_direct(Host("b", address="10.0.0.7"))
    assert not is_direct(Host("b", address="10.0.0.7", ssh_config=config))


def test_what_cannot_be_told_is_left_to_fabric(config: Path, tmp_path: Path) -> None:
    config.write_text('Match exec "true"\n  User root\n')
    assert not is_direct(Host("b", address="10.0.0.7"))
    config.write_text("odd\n")
    assert not is_direct(Host("b", address="10.0.0.7"))
    config.unlink()
    assert is_direct(Host("b", address="10.0.0.7"))
    assert is_direct(Host("b", address="fe80::1"))
    assert not is_direct(Host("b", address="10.0.0.7", ssh_config=tmp_path / "gone"))
    assert not is_direct(Host("b", address="10.0.0.7", proxy_jump="hop"))
    assert not is_direct(Host("b", address="root@10.0.0.7"))
    assert not is_direct(Host("b", address="10.0.0.7:22"))


def test_a_config_is_read_again_when_it_changed(config: Path) -> None:
    config.write_text("")
    assert is_direct(Host("b", address="10.0.0.7"))
    config.write_text("Host *\n  User root\n")
    assert not is_direct(Host("b", address="10.0.0.7"))


def test_both_ways_lead_to_the_same(config: Path, tmp_path: Path) -> None:
    """User, port, key and host key as the inventory has them."""
    folder = tmp_path / "sshd"
    folder.mkdir()
    with running(folder) as server:
        ways = []
        for text in ("", "Host *\n  ConnectTimeout 9\n"):
            config.write_text(text)
            link = SshTransport(server.host())
            link.open(Deadline(10))
            ways.append((isinstance(link._connection, Direct), link.hops()))
            link.close()
    (one, direct_way), (two, fabrics_way) = ways
    assert (one, two) == (True, False)
    assert direct_way == fabrics_way


def in_a_new_python(*lines: str) -> None:
    """This one may have imported what is asked about."""
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_paramiko_is_light_for_the_command_and_knows_its_version() -> None:
    lines = (
        "import sys",
        "from fleet.transport.lean import import_early",
        "import_early()",
        "from fleet.model.inventory import Host",
        "from fleet.transport import transport_for",
        "transport_for(Host('b', address='evk'))",
        "import paramiko",
        "assert not {'invoke', 'asyncio'} & set(sys.modules)",
        "from importlib.metadata import version",
        "assert paramiko.__version__ == version('paramiko'), paramiko.__version__",
    )
    in_a_new_python(*lines)


def test_match_exec_works_though_paramiko_came_without_invoke(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text('Match exec "true"\n  HostName 127.0.0.1\n  Port 1\n  User me\n')
    lines = (
        "import sys",
        "from pathlib import Path",
        "from fleet.transport.lean import import_early",
        "import_early()",
        "from fleet.model.inventory import Host",
        "from fleet.transport import transport_for",
        f"link = transport_for(Host('b', address='evk', ssh_config=Path({str(config)!r})))",
        "assert 'invoke' not in sys.modules",
        "found = link.connection(5.0)",
        "assert (found.host, found.port, found.user) == ('127.0.0.1', 1, 'me'), found",
    )
    in_a_new_python(*lines)
