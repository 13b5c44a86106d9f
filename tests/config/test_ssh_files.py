"""ssh configs with includes, as inventories, and the way to each host in `config list`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.config.inventory import load_inventory, ssh_configs
from fleet.config.ssh_files import expanded, named_hosts, with_included
from fleet.transport.connection import route_of
from tests.warm import fleet


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh" / "conf.d").mkdir(parents=True)
    return tmp_path


def write(home: Path, main: str, **included: str) -> Path:
    for name, text in included.items():
        (home / ".ssh" / "conf.d" / name).write_text(text)
    path = home / "ssh_config"
    path.write_text(main)
    return path


def test_an_included_file_ends_with_its_own_block(home: Path) -> None:
    """The block of the Include continues after the file (ssh_config(5))."""
    path = write(home, "Host a\n  Include conf.d/*\n  Port 2201\n", one="Host b\n  Port 2202\n")
    assert named_hosts(expanded(path)) == ["a", "b"]
    inventory = load_inventory(path)
    assert {host.name: route_of(host).port for host in inventory.hosts} == {"a": 2201, "b": 2202}
    assert ssh_configs(inventory.hosts) == [path, home / ".ssh/conf.d/one"] == with_included(path)


def test_a_file_that_includes_itself_is_read_once(home: Path) -> None:
    path = write(home, "Include conf.d/*\nHost a\n", one="Include ~/ssh_config\nHost b\n")
    assert named_hosts(expanded(path)) == ["b", "a"]
    assert with_included(path) == [path, home / ".ssh/conf.d/one"]


def test_the_list_shows_what_ssh_would_use(home: Path) -> None:
    path = write(
        home,
        "Include conf.d/*\nInclude gone/*\nHost rb3-1 rb3-2\n  HostName %h.lab\n  ProxyJump gw\n"
        "Host rb3-*\n  User root\n  IdentityFile ~/.ssh/lab\nHost *\n  User me\n",
        gw="Host gw\n  HostName 10.0.0.1\n  Port 2222\n",
    )
    done = fleet("config", "list", path, "--json")
    assert done.returncode == 0
    assert "`Include gone/*`" in done.stderr
    rows = {row["name"]: row["route"] for row in json.loads(done.stdout)}
    key = str(home / ".ssh/lab")
    assert rows["gw"] == {
        "address": "10.0.0.1", "port": 2222, "user": "me", "via": [], "identity_files": [],
    }  # fmt: skip
    assert rows["rb3-2"] == {
        "address": "rb3-2.lab", "port": None, "user": "root", "via": ["me@10.0.0.1:2222"],
        "identity_files": [key],
    }  # fmt: skip
    assert "me@10.0.0.1:2222" in fleet("config", "list", path).stdout


def test_a_config_of_patterns_only_has_no_host(home: Path) -> None:
    done = fleet("config", "list", write(home, "Host *\n  User root\n"))
    assert done.returncode == 2
    assert "names no single host" in done.stderr


@pytest.mark.parametrize(
    "address",
    ["100.x.y.z", "<IP>", "YOUR_BOARD", "192.168.1.x", "192.168.X.X", "x.x.x.x",
     "board.example.com", "198.51.100.4", "${BOARD}", "your-evk", "my_board_ip", "10.0.0.###"],
)  # fmt: skip
def test_an_address_of_an_example_is_named(tmp_path: Path, address: str) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(f"all:\n  hosts:\n    b1: {{host: '{address}'}}\n    b2: {{host: 10.0.0.7}}\n")
    for command in ("list", "check"):
        done = fleet("config", command, path)
        assert f"b1, {address}, is a placeholder" in done.stderr, command
        assert "b2" not in done.stderr


@pytest.mark.parametrize(
    "address", ["evk-01", "myra.lab", "10.0.0.12", "xx1.lan", "fe80::1", "todo1"]
)
def test_a_real_address_is_no_placeholder(tmp_path: Path, address: str) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(f"all:\n  hosts:\n    b1: {{host: '{address}'}}\n")
    assert "placeholder" not in fleet("config", "list", path).stderr


def test_an_inventory_of_pyinfra_is_read_and_not_run(tmp_path: Path) -> None:
    path = tmp_path / "inventory.py"
    path.write_text(
        "import os\nos.abort()\n"
        "boards = (['10.0.0.1', ('10.0.0.2', {'ssh_user': 'root', 'ssh_port': 2222})],\n"
        "          {'ssh_key': 'lab_key', 'other': 1})\n"
        "mine = ['@local', '@ssh/10.0.0.3']\nnames = os.environ\n"
    )
    inventory = load_inventory(path)
    rows = {host.name: (host.user, host.port, host.groups) for host in inventory.hosts}
    assert rows == {
        "10.0.0.1": (None, None, ("boards",)),
        "10.0.0.2": ("root", 2222, ("boards",)),
        "10.0.0.3": (None, None, ("mine",)),
    }
    assert inventory.hosts[0].identity_files == (tmp_path / "lab_key",)
    path.write_text("print('nothing')\n")
    assert fleet("config", "list", path).returncode == 2
