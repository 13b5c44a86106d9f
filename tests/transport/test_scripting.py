"""Scripts that use fabric and adbutils over connections of fleet."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from invoke.exceptions import AuthFailure

import fleet
from fleet.lab import LabPhones
from fleet.model.errors import HostKeyError, InputError
from fleet.model.inventory import Host
from fleet.model.secret import SecretRef
from fleet.transport.scripting import adbutils_device, fabric_connection, fabric_group
from tests.phones.conftest import Make, desk, namespaces

from .sshd import Sshd, make_key, running

__all__ = ["desk", "namespaces"]
QUIET: dict[str, Any] = {"hide": True, "in_stream": False}  # pytest has no standard input
SFTP = "Subsystem=sftp internal-sftp"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running(tmp_path_factory.mktemp("sshd"), SFTP) as one:
        yield one


def test_a_fabric_script_runs_puts_and_gets(server: Sshd, tmp_path: Path) -> None:
    with fabric_connection(server.host()) as link:
        assert link.run("echo $((6 * 7))", **QUIET).stdout == "42\n"
        assert link.run("exit 3", **QUIET, warn=True).exited == 3
        link.put(StringIO("text"), str(tmp_path / "there"))
        assert (tmp_path / "there").read_text() == "text"
        link.get(str(tmp_path / "there"), str(tmp_path / "back"))
        assert (tmp_path / "back").read_text() == "text"
        assert link.is_connected
    assert not link.is_connected
    assert link.run("echo again", **QUIET).stdout == "again\n"
    link.close()


def test_a_group_runs_on_all_at_once(server: Sshd, tmp_path: Path) -> None:
    with running(tmp_path) as other, fabric_group([server.host(), other.host(name="b2")]) as group:
        done = group.run("echo $SSH_CONNECTION", **QUIET)
    ports = {int(result.stdout.split()[3]) for result in done.values()}
    assert ports == {server.port, other.port}


def test_sudo_gets_the_password_of_the_inventory(desk: Make) -> None:
    board = desk(None, LabPhones(0), boards=1)
    password = SecretRef("file:password", board.lab.inventory.parent)
    host = replace(board.hosts[0], become_password=password)
    with fabric_connection(host) as link:
        assert link.sudo("id -u", **QUIET).stdout == "0\n"
        with pytest.raises(AuthFailure):
            link.sudo("id -u", password="another", **QUIET)
        assert "another" not in repr(link.config)


def test_a_jump_host_is_passed(server: Sshd, tmp_path: Path) -> None:
    with running(tmp_path / "inner") as inner:
        both = tmp_path / "known"
        both.write_text(server.known_hosts.read_text() + inner.known_hosts.read_text())
        host = inner.host(
            known_hosts=both,
            identity_files=(inner.identity, server.identity),
            proxy_jump=f"{getpass.getuser()}@127.0.0.1:{server.port}",
        )
        with fabric_connection(host) as link:
            assert link.run("echo $SSH_CONNECTION", **QUIET).stdout.split()[3] == str(inner.port)


def test_a_changed_host_key_is_refused(server: Sshd, tmp_path: Path) -> None:
    kind, key = make_key(tmp_path / "other").with_suffix(".pub").read_text().split()[:2]
    known = tmp_path / "known"
    known.write_text(f"[127.0.0.1]:{server.port} {kind} {key}\n")
    with pytest.raises(HostKeyError), fabric_connection(server.host(known_hosts=known)) as link:
        link.run("true", **QUIET)


def test_the_names_are_those_of_the_inventory(server: Sshd, tmp_path: Path) -> None:
    inventory = tmp_path / "boards.yaml"
    inventory.write_text(
        "all:\n  hosts:\n"
        f"    one: {{host: 127.0.0.1, port: {server.port}, identity_file: {server.identity}, "
        f"known_hosts: {server.known_hosts}}}\n"
        "    two: {host: 127.0.0.1, port: 1}\n"
        "    phone: {transport: adb}\n"
        "  children:\n    boards:\n      hosts: {one: , two: }\n"
    )
    with fleet.connection("one", inventory=inventory) as link:
        assert link.run("echo $SSH_CONNECTION", **QUIET).stdout.split()[3] == str(server.port)
    assert [link.port for link in fleet.group("boards:!two", inventory=inventory)] == [server.port]
    with pytest.raises(InputError, match="'boards' names 2 devices"):
        fleet.connection("boards", inventory=inventory)
    with pytest.raises(InputError, match="phone is reached over adb") as caught:
        fleet.connection("phone", inventory=inventory)
    assert caught.value.hint == 'fleet.adb_device("phone")'
    with pytest.raises(InputError, match="one is reached over ssh"):
        fleet.adb_device("one", inventory=inventory)


def test_the_inventory_of_the_environment_is_the_default(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory = tmp_path / "boards.yaml"
    inventory.write_text(f"all:\n  hosts:\n    one: {{host: 127.0.0.1, port: {server.port}}}\n")
    monkeypatch.setenv("FLEET_INVENTORY", str(inventory))
    assert fleet.connection("one").port == server.port


def test_an_adbutils_script_runs_on_a_phone(desk: Make, tmp_path: Path) -> None:
    phone: Host = desk(None).hosts[0]
    device = adbutils_device(phone)
    assert device.shell("echo $((6 * 7))") == "42"
    (tmp_path / "file").write_text("text")
    device.sync.push(str(tmp_path / "file"), "/data/local/tmp/file")
    assert device.shell("cat /data/local/tmp/file") == "text"


FABFILE = """from fabric import Connection, ThreadingGroup

board = Connection("lab001")
assert board.run("uname -s", hide=True).stdout.strip() == "Linux"
board.put("notes.txt", "/tmp/notes.txt")
assert board.run("cat /tmp/notes.txt", hide=True).stdout == "skel and stub\\n"
board.get("/tmp/notes.txt", "back.txt")
assert board.sudo("id -u", hide=True).stdout.strip() == "0"
with ThreadingGroup("lab001", "lab002") as both:
    found = both.run("hostname", hide=True)
print(*sorted(result.stdout.strip() for result in found.values()))
"""
ADB_SCRIPT = """from adbutils import adb; phone = adb.device("PHONE")

assert phone.shell("echo $((6 * 7))") == "42"
phone.sync.push("notes.txt", "/data/local/tmp/notes.txt")
phone.sync.pull("/data/local/tmp/notes.txt", "back.txt")
print(phone.prop.get("ro.soc.model"))
"""


def run_script(folder: Path, first: str, script: str, inventory: Path) -> str:
    """Run a script with another first line, as a person does; return what it prints."""
    (folder / "notes.txt").write_text("skel and stub\n")
    (folder / "script.py").write_text(first + "\n" + script.partition("\n")[2])
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, timeout=120,
        env={**os.environ, "FLEET_INVENTORY": str(inventory)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (folder / "back.txt").read_text() == "skel and stub\n"
    return done.stdout


def test_a_fabfile_works_on_lab_boards_but_for_its_first_line(desk: Make, tmp_path: Path) -> None:
    inventory = desk(None, LabPhones(0), boards=2).lab.inventory
    first = "from fleet import connection as Connection, group as ThreadingGroup"
    assert run_script(tmp_path, first, FABFILE, inventory) == "lab001 lab002\n"


def test_an_adbutils_script_works_on_a_lab_phone_but_for_its_first_line(
    desk: Make, tmp_path: Path
) -> None:
    lab = desk(None).lab
    first = f'import fleet; phone = fleet.adb_device("{lab.phones[0].name}")'
    assert run_script(tmp_path, first, ADB_SCRIPT, lab.inventory) == "SM8650\n"
