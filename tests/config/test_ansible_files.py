"""Ansible's inventories in INI, folders of variables, dynamic ones, hosts that drop out."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fleet.config.inventory import load_inventory, read_inventory
from fleet.config.select import select
from fleet.model.errors import InventoryError
from fleet.model.inventory import Inventory
from tests import inputs

INI = """# boards of the lab
gateway.example.net ansible_port=2222   ; not a comment of a line
[iq9]
evk-[01:03] ansible_host=192.0.2.1 # first row
evk-09 ansible_user="lab_user" http_port=8080

[iq9:vars]
ansible_user=ubuntu
ansible_ssh_private_key_file = ~/.ssh/evk
[phones]
[all:children]
iq9
[east:children]
iq9
phones
[all:vars]
ansible_user=root
"""


def loaded(folder: Path, text: str, name: str = "hosts.ini") -> Inventory:
    (folder / name).write_text(text)
    return load_inventory(folder / name)


def test_an_ini_inventory(tmp_path: Path) -> None:
    text = INI.replace("   ; not a comment of a line", "")
    found = loaded(tmp_path, text)
    hosts = {host.name: host for host in found.hosts}
    assert list(hosts) == ["gateway.example.net", "evk-01", "evk-02", "evk-03", "evk-09"]
    assert (hosts["gateway.example.net"].port, hosts["gateway.example.net"].user) == (2222, "root")
    assert (hosts["evk-02"].address, hosts["evk-02"].user) == ("192.0.2.1", "ubuntu")
    assert hosts["evk-09"].user == "lab_user"
    assert hosts["evk-01"].identity_files[0].name == "evk"
    assert set(found.groups["east"]) == {"evk-01", "evk-02", "evk-03", "evk-09"}


def test_the_input_that_was_refused(tmp_path: Path) -> None:
    found = loaded(tmp_path, inputs.of("C29").read_text(), "hosts")
    assert [host.name for host in found.hosts] == ["evk-01", "evk-02", "evk-03"]
    assert {host.user for host in found.hosts} == {"ubuntu"}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[a]\nx1 y\n", 2, "'y' of the host x1 is no variable"),
        ("[a]\nx1\n[a:vars]\nnothing\n", 4, "'nothing' is no variable"),
        ("[a:others]\nx=1\n", 1, "[a:others] is no section"),
        ("[a]\nx1 v='open\n", 2, "the line cannot be split"),
        ("[a]\nx1 ansible_port=http\n", 2, "port"),
    ],
)
def test_mistakes_of_an_ini_file_have_their_line(
    tmp_path: Path, text: str, line: int, words: str
) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text(text)
    (error,) = read_inventory(path).errors
    assert words in str(error)
    assert f"hosts.ini:{line}" in str(error)


def test_hosts_without_a_section(tmp_path: Path) -> None:
    found = loaded(tmp_path, "192.0.2.7 ansible_user=me\nevk1\n", "hosts")
    assert [(host.name, host.user) for host in found.hosts] == [("192.0.2.7", "me"), ("evk1", None)]


def test_variables_beside_the_inventory(tmp_path: Path) -> None:
    for name, text in (
        ("group_vars/all.yml", "ansible_user: everyone\nansible_port: 2201\n"),
        ("group_vars/iq9/a.yaml", "ansible_user: ubuntu\n"),
        ("group_vars/iq9/b.yml", "# nothing\n---\n"),
        ("group_vars/other.yml", "ansible_user: [not read]\n"),
        ("host_vars/evk-02", "ansible_port: 2202\n"),
        ("host_vars/evk-01.yml", "$ANSIBLE_VAULT;1.1;AES256\n3031\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = loaded(tmp_path, "all: {children: {iq9: {hosts: {evk-01: , evk-02: }}}}\n", "x.yaml")
    ports = {host.name: (host.user, host.port) for host in found.hosts}
    assert ports == {"evk-01": ("ubuntu", 2201), "evk-02": ("ubuntu", 2202)}
    assert any("ansible-vault encrypted it" in text for text in found.warnings)
    assert load_inventory(tmp_path).hosts == found.hosts, "the folder has one inventory"
    (tmp_path / "second.yaml").write_text("all: {hosts: {x: }}\n")
    with pytest.raises(InventoryError, match=r"several inventories: second\.yaml, x\.yaml"):
        load_inventory(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_variables_of_a_stranger_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()
    path = tmp_path / "group_vars/all.yml"
    path.write_text("ansible_ssh_common_args: -o ProxyCommand=evil\n")
    os.chown(path, 12345, 12345)
    with pytest.raises(InventoryError, match=r"all\.yml is not trusted"):
        loaded(tmp_path, "[a]\nx1\n")


def test_a_host_that_fleet_cannot_use_drops_out(tmp_path: Path) -> None:
    found = loaded(tmp_path, inputs.of("C28").read_text(), "x.yaml")
    assert [host.name for host in found.hosts] == ["b1"]
    assert any("leaves out x1: fleet does not support the connection winrm" in text
               for text in found.warnings)  # fmt: skip
    assert [host.name for host in select(found, ["b1"])] == ["b1"]
    assert [host.name for host in select(found, ["all,!x1"])] == ["b1"]
    with pytest.raises(InventoryError, match=r"'x1' cannot be used: .*winrm.* \(.*x\.yaml:5"):
        select(found, ["x1"])
    with pytest.raises(InventoryError, match="'windows' has no hosts that fleet can connect to"):
        select(found, ["windows"])


def test_the_nearest_connection_wins(tmp_path: Path) -> None:
    text = "[a]\nx1 ansible_connection=ssh\nx2\nx3 ansible_connection=docker\n[a:vars]\n"
    found = loaded(tmp_path, text + "ansible_connection=network_cli\n")
    assert [host.name for host in found.hosts] == ["x1"]
    assert set(found.left_out) == {"x2", "x3"}
    nothing = loaded(tmp_path, "[a]\nx1 ansible_connection=winrm\n")
    with pytest.raises(InventoryError, match="'x1' cannot be used"):
        select(nothing)


def test_a_vaulted_inventory_is_not_called_ini(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="encrypted by ansible-vault") as caught:
        loaded(tmp_path, "$ANSIBLE_VAULT;1.1;AES256\n6162\n", "hosts.yml")
    assert "ansible-vault view" in caught.value.hint


LISTED = {
    "_meta": {"hostvars": {"evk1": {"ansible_host": "192.0.2.5"}, "evk2": {}}},
    "all": {"children": ["iq9", "ungrouped"]},
    "iq9": {"hosts": ["evk1", "evk2"], "vars": {"ansible_user": "ubuntu"}},
}


def tool(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    (folder / "bin").mkdir()
    path = folder / "bin/ansible-inventory"
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


def test_a_dynamic_inventory_is_read_by_the_users_own_ansible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "plugin: community.general.nmap\naddress: 192.0.2.0/24\n"
    with monkeypatch.context() as without:
        without.setenv("PATH", "/nonexistent")
        with pytest.raises(InventoryError, match="does not have"):
            loaded(tmp_path, text, "nmap.yml")
    body = f"pwd > {tmp_path}/where; echo \"$@\" >> {tmp_path}/where\ncat <<'E'\n"
    tool(tmp_path, monkeypatch, f"{body}{json.dumps(LISTED)}\nE\n")
    found = loaded(tmp_path, text, "nmap.yml")
    assert [(host.name, host.address, host.user) for host in found.hosts] == [
        ("evk1", "192.0.2.5", "ubuntu"), ("evk2", "evk2", "ubuntu"),
    ]  # fmt: skip
    assert (tmp_path / "where").read_text() == f"/\n-i {tmp_path}/nmap.yml --list\n"


def test_a_failing_tool_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, monkeypatch, "echo 'no such plugin' >&2; exit 4\n")
    with pytest.raises(InventoryError, match="failed: no such plugin"):
        loaded(tmp_path, "#!/usr/bin/python3\n", "dynamic.py")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_nothing_of_a_stranger_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, monkeypatch, f"touch {tmp_path}/ran; echo '{{}}'\n")
    path = tmp_path / "dynamic.py"
    path.write_text("#!/bin/sh\n")
    os.chown(path, 12345, 12345)
    for read in (load_inventory, read_inventory):
        with pytest.raises(InventoryError, match="not trusted"):
            read(path)
    assert not (tmp_path / "ran").exists()
