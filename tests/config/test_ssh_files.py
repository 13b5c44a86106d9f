"""ssh configs with includes, as inventories, and the way to each host in `config list`."""

from __future__ import annotations

import getpass
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from fleet.config.inventory import load_inventory, ssh_configs
from fleet.config.powers import Power, powers
from fleet.config.ssh_files import expanded, named_hosts, with_included
from fleet.model.inventory import Host
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
    path = write(home, "Host *\n  Include conf.d/*\n  Port 2201\n", one="Host b\n  Port 2202\n")
    assert named_hosts(expanded(path)) == ["b"]
    inventory = load_inventory(path)
    assert {host.name: route_of(host).port for host in inventory.hosts} == {"b": 2202}
    assert ssh_configs(inventory.hosts) == {path: ("b",), home / ".ssh/conf.d/one": ("b",)}
    assert with_included(path) == [path, home / ".ssh/conf.d/one"]


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh client on this computer")
@pytest.mark.parametrize(
    ("main", "one", "names"),
    [
        ("Host a\n  Include conf.d/*\n  Port 2201\n", "Host b\n  Port 2202\n", ["a"]),
        ("Host a b\n  Include conf.d/*\nHost c\n  Port 2203\n",
         "Port 2201\nHost b*\n  User x\nMatch host b\n  Port 7\n  ConnectTimeout 9\n", "abc"),
        ("Match originalhost !c,*\n  Include conf.d/*\n", "Host *\n  Port 7\nHost c\n User x\n",
         []),
        ("Host * !b\nInclude conf.d/*\nHost b\n  Port 9\n", "Match all\n  Port 8\n", ["b"]),
        ('MATCH exec "true # x" # all\n  Include conf.d/*\n', "Host b # c\n  Port 8\n", []),
        ("Match all\n  Include conf.d/*\nHost c\n  User x\n", "Host a\n  Port 8\n", ["a", "c"]),
    ],
)  # fmt: skip
def test_an_include_counts_where_ssh_uses_it(
    home: Path, main: str, one: str, names: list[str]
) -> None:
    """A file that a block includes applies only to the hosts of this block: ssh -G agrees."""
    path = write(home, main, one=one)
    # ssh does not read HOME, so its own file has an absolute path.
    own = home / "own"
    own.write_text(main.replace("conf.d/", f"{home}/.ssh/conf.d/"))
    assert named_hosts(expanded(path)) == list(names)
    for name in "abc":
        argv = ["ssh", "-G", "-F", str(own), name]
        lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
        wanted = dict(line.partition(" ")[::2] for line in lines)
        route = route_of(Host(name, name, ssh_config=path))
        assert str(route.port or 22) == wanted["port"], name
        assert (route.user or getpass.getuser()) == wanted["user"], name


@pytest.mark.parametrize(
    "text",
    [
        "ServerAliveInterval 30\nHost rb3\n  HostName 10.0.0.1\n",
        "Host=rb3\n  HostName=10.0.0.1\n",
        "IdentityFile = ~/.ssh/key\nMatch user me\n  Port 1\nHost rb3\nHostName 10.0.0.1\n",
    ],
)
def test_an_ssh_config_is_known_by_any_of_its_lines(tmp_path: Path, text: str) -> None:
    path = tmp_path / "boards"
    path.write_text(text)
    hosts = load_inventory(path).hosts
    assert [(host.name, route_of(host).address) for host in hosts] == [("rb3", "10.0.0.1")]


@pytest.mark.parametrize("name", ["host", "match", "include"])
def test_an_ini_host_with_the_name_of_a_keyword(tmp_path: Path, name: str) -> None:
    path = tmp_path / "boards"
    path.write_text(f"{name} ansible_host=10.0.0.1\n")
    assert [(host.name, host.address) for host in load_inventory(path).hosts] == [
        (name, "10.0.0.1")
    ]


@pytest.mark.parametrize("config", [b"Host a\n  # \xe9\n", b'Include "x\nHost a\n'])
def test_the_list_names_a_config_that_cannot_be_read(tmp_path: Path, config: bytes) -> None:
    (tmp_path / "bad").write_bytes(config)
    path = tmp_path / "hosts.yaml"
    path.write_text("all:\n  hosts:\n    a: {ssh_config: bad}\n    b:\n")
    done = fleet("config", "list", path, "--json")
    assert "cannot use the ssh config" in done.stderr
    assert [row["name"] for row in json.loads(done.stdout)] == ["a", "b"]


def test_a_program_of_an_included_file_names_its_hosts(home: Path) -> None:
    path = write(home, "Include conf.d/*\nHost a\n", one="Host b\n  ProxyCommand nc %h %p\n")
    inventory = load_inventory(path)
    assert powers(inventory.hosts) == [
        Power("run", "nc %h %p", f"ProxyCommand in {home}/.ssh/conf.d/one:2", ("b", "a"))
    ]


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


@pytest.mark.parametrize(
    "value", ["{[1]: 2}", f"{'-' * 20000}1", f"{'[' * 150}{']' * 150}", f"{'+'.join('1' * 9999)}"]
)
def test_odd_python_in_an_inventory_of_pyinfra(tmp_path: Path, value: str) -> None:
    path = tmp_path / "inventory.py"
    path.write_text(f"boards = ['10.0.0.1']\nother = {value}\n")
    done = fleet("config", "list", path)
    assert done.returncode in (0, 2)
    assert ("10.0.0.1" in done.stdout) == (done.returncode == 0)
    assert ("is not Python" in done.stderr) == (done.returncode == 2)
