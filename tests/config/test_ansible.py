from __future__ import annotations

from pathlib import Path

import pytest

from fleet.config.ansible import understand
from fleet.config.inventory import InventoryReading, load_inventory, read_inventory
from fleet.model.errors import InputError, InventoryError
from fleet.model.inventory import Host


def reading(folder: Path, text: str) -> InventoryReading:
    path = folder / "hosts.yml"
    path.write_text(text, "utf-8")
    return read_inventory(path)


def only(folder: Path, body: str) -> tuple[Host, InventoryReading]:
    found = reading(folder, f"all:\n  hosts:\n    evk:\n      {body}\n")
    assert found.errors == ()
    assert found.inventory is not None
    return found.inventory.hosts[0], found


# In the shapes of Ansible's own documentation and of inventories in the wild.
NESTED = """
---
all:
  hosts:
    gateway.example.net:
  children:
    boards:
      hosts:
        npu[01:03].example.net:
        npu99.example.net:
          ansible_host: 192.0.2.99
          ansible_port: "2222"
          http_port: 80
          maxRequestsPerChild: 808
      vars:
        ansible_user: ubuntu
        ntp_server: ntp.example.net
        nested: {deep: [1, 2, {ansible_like: x}]}
    phones:
      hosts:
        desk:5309:
    east:
      children:
        boards:
        phones: {}
      vars:
        ansible_ssh_private_key_file: ~/.ssh/east
  vars:
    ansible_python_interpreter: /usr/bin/python3
    ansible_become: true
    ansible_become_user: root
"""


def test_a_nested_inventory(tmp_path: Path) -> None:
    found = reading(tmp_path, NESTED)
    assert found.errors == ()
    assert found.warnings == ()
    assert found.ansible
    assert found.inventory is not None
    hosts = {host.name: host for host in found.inventory.hosts}
    assert list(hosts) == [
        "gateway.example.net",
        "npu01.example.net",
        "npu02.example.net",
        "npu03.example.net",
        "npu99.example.net",
        "desk",
    ]
    odd = hosts["npu99.example.net"]
    assert (odd.address, odd.port, odd.user) == ("192.0.2.99", 2222, "ubuntu")
    assert odd.identity_files == (Path("~/.ssh/east").expanduser(),)
    assert odd.groups == ("east", "boards")
    assert hosts["desk"].port == 5309
    assert hosts["gateway.example.net"].user is None
    assert {each.key for each in found.ignored} == {
        "http_port",
        "maxRequestsPerChild",
        "ntp_server",
        "nested",
        "ansible_python_interpreter",
        "ansible_become",
        "ansible_become_user",
    }
    first = next(each for each in found.ignored if each.key == "http_port")
    assert str(first.position) == f"{tmp_path / 'hosts.yml'}:13:11"


LISTED = """
all:
  children:
    evks:
      hosts:
        evk1: {ansible_connection: ssh, ansible_host: 192.0.2.1, ansible_user: root}
        evk2: {ansible_connection: local}
    ungrouped: {}
"""


def test_what_ansible_inventory_list_prints(tmp_path: Path) -> None:
    found = reading(tmp_path, LISTED)
    assert found.inventory is not None
    assert [host.transport for host in found.inventory.hosts] == ["ssh", "local"]
    assert found.inventory.groups["ungrouped"] == ()


VALUES = [
    ("ansible_host: 192.0.2.1", "address", "192.0.2.1"),
    ("ansible_ssh_host: h", "address", "h"),
    ("ansible_port: 2222", "port", 2222),
    ("ansible_port: '2222'", "port", 2222),
    ("ansible_ssh_port: 2222", "port", 2222),
    ("ansible_user: 1000", "user", "1000"),
    ("ansible_user: yes", "user", "yes"),
    ("ansible_user: ", "user", None),
    ("ansible_ssh_user: x", "user", "x"),
    ("{ansible_ssh_user: new, ansible_user: old}", "user", "new"),
    ("{ansible_ssh_host: new, ansible_host: old}", "address", "new"),
    ("ansible_private_key_file: /k", "identity_files", (Path("/k"),)),
    ("ansible_ssh_private_key_file: /k", "identity_files", (Path("/k"),)),
    ("ansible_connection: ssh", "transport", "ssh"),
    ("ansible_connection: paramiko", "transport", "ssh"),
    ("ansible_connection: paramiko_ssh", "transport", "ssh"),
    ("ansible_connection: smart", "transport", "ssh"),
    ("ansible_connection: ansible.builtin.ssh", "transport", "ssh"),
    ("ansible_connection: local", "transport", "local"),
    ("ansible_ssh_common_args: -J root@jump", "proxy_jump", "root@jump"),
    ("ansible_ssh_extra_args: -o ProxyJump=jump:22", "proxy_jump", "jump:22"),
    ("{ansible_ssh_extra_args: -J b, ansible_ssh_common_args: -J a}", "proxy_jump", "a"),
    ("ansible_ssh_common_args: -F /etc/lab_ssh", "ssh_config", Path("/etc/lab_ssh")),
    ("{ansible_user: u, soc: QCS9075}", "soc", "QCS9075"),
    ("{ansible_user: u, transport: adb, serial: x1}", "serial", "x1"),
    ("{ansible_connection: ssh, transport: adb}", "transport", "adb"),
    ("{ansible_user: u, base_dir: /opt/fleet}", "base_dir", "/opt/fleet"),
    ("{ansible_user: u, proxy_jump: mine, ansible_ssh_args: -J a}", "proxy_jump", "mine"),
    ("{ansible_user: u, soc: null}", "soc", None),
]


@pytest.mark.parametrize(("body", "field", "value"), VALUES)
def test_values(tmp_path: Path, body: str, field: str, value: object) -> None:
    host, found = only(tmp_path, body)
    assert getattr(host, field) == value
    assert found.warnings == ()


SECRETS = [
    ("ansible_password", "password"),
    ("ansible_ssh_pass", "password"),
    ("ansible_become_password", "become_password"),
    ("ansible_become_pass", "become_password"),
    ("ansible_sudo_pass", "become_password"),
]


@pytest.mark.parametrize(("key", "field"), SECRETS)
@pytest.mark.parametrize(("text", "value"), [("hunter2", "hunter2"), ("0123", "0123")])
def test_clear_text_works_and_is_not_shown(
    tmp_path: Path, key: str, field: str, text: str, value: str
) -> None:
    host, found = only(tmp_path, f"{key}: {text}")
    ref = getattr(host, field)
    assert ref.get().reveal() == value
    assert f"'{key}' is a password in clear text" in found.warnings[0]
    assert f"{tmp_path / 'hosts.yml'}:4:" in found.warnings[0]
    assert value not in f"{host!r}{host}{ref}{found!r}{found.warnings}".replace(str(tmp_path), "")


@pytest.mark.parametrize(
    "text",
    [
        "\"{{ lookup('env', 'FLEET_PW') }}\"",
        '\'{{lookup("ansible.builtin.env","FLEET_PW")}}\'',
        "env:FLEET_PW",
    ],
)
def test_passwords_from_the_environment(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_PW", "hunter2")
    host, found = only(tmp_path, f"ansible_password: {text}")
    assert host.password is not None
    assert host.password.reference == "env:FLEET_PW"
    assert host.password.get().reveal() == "hunter2"
    assert found.warnings == ()


def test_vault_loads_and_fails_when_it_is_used(tmp_path: Path) -> None:
    host, found = only(tmp_path, "ansible_password: !vault |\n        $ANSIBLE_VAULT;1.1;AES256")
    assert host.password is not None
    with pytest.raises(InputError, match="encrypted by ansible-vault") as caught:
        host.password.get()
    assert "env:NAME" in caught.value.hint
    assert "hosts.yml:4:25" in str(caught.value)
    assert found.warnings == ()


def test_vault_in_a_variable_that_is_not_used(tmp_path: Path) -> None:
    _, found = only(tmp_path, "{ansible_user: u, api_key: !vault x}")
    assert [each.key for each in found.ignored] == ["api_key"]


BAD = [
    ("ansible_host: '{{ ip }}'", 21, "'ansible_host' contains a template", "without a template"),
    ("ansible_port: '{{ port }}'", 21, "'ansible_port' contains a template", "without a template"),
    ("ansible_user: '{% if x %}'", 21, "'ansible_user' contains a template", "without a template"),
    ("ansible_password: '{{ vault_pw }}'", 25, "which fleet does not evaluate", "env:NAME"),
    ("ansible_become_pass: \"{{ lookup('file', 'x') }}\"", 28, "does not evaluate", "env:NAME"),
    ("ansible_ssh_common_args: '-J {{ gw }}'", 32, "which fleet does not evaluate", "value"),
    ("ansible_port: ssh", 21, "'port' must be a whole number", ""),
    ("ansible_port: 70000", 21, "'port' must be at most 65535", ""),
    ("ansible_host: a b", 21, "'a b' is not a valid address", ""),
    ("ansible_user: !vault x", 21, "encrypted by ansible-vault", "env:NAME"),
    ("ansible_host: [a]", 21, "must be text, not a list", ""),
    ("ansible_password: [a]", 25, "must be text, not a list", "env:NAME"),
    ("ansible_password: 'env:A B'", 25, "not a valid reference to a secret", "env:NAME"),
    ("ansible_ssh_common_args: -J -x", 32, "is not a valid jump host", "port"),
]


@pytest.mark.parametrize(("body", "column", "message", "hint"), BAD)
def test_refused(tmp_path: Path, body: str, column: int, message: str, hint: str) -> None:
    found = reading(tmp_path, f"all:\n  hosts:\n    evk:\n      {body}\n")
    assert found.inventory is None
    error = found.errors[0]
    assert str(error.position) == f"{tmp_path / 'hosts.yml'}:4:{column}"
    assert message.replace("'port'", "'ansible_port'") in error.message
    assert hint in error.hint
    with pytest.raises(InventoryError):
        load_inventory(tmp_path / "hosts.yml")


WARNED = [
    ("ansible_hots: x", "fleet ignores the variable 'ansible_hots'; did you mean 'ansible_host'?"),
    ("ansible_ssh_prot: x", "did you mean 'ansible_ssh_port'?"),
    ("ansible_pyton_interpreter: x", "did you mean 'ansible_python_interpreter'?"),
    ("ansible_zzzzzz: x", "fleet ignores the variable 'ansible_zzzzzz'"),
    ("{ansible_user: u, prot: 22}", "fleet ignores the variable 'prot'; did you mean 'port'?"),
    ("{ansible_user: u, serail: 22}", "did you mean 'serial'?"),
    ("{ansible_user: u, port: 8080}", "fleet uses the variable 'port' as its own setting"),
    ("{ansible_port: 22, port: 8080}", "fleet ignores 'port', because an ansible_ variable"),
    ("{ansible_user: u, password: hunter2}", "fleet ignores the key 'password'"),
    ("{ansible_user: u, labels: [a]}", "fleet ignores the key 'labels'"),
    ("{ansible_user: u, target: prod}", "fleet ignores the key 'target'"),
    ("ansible_ssh_common_args: -o StrictHostKeyChecking=no", "fleet always checks host keys"),
]


@pytest.mark.parametrize(("body", "message"), WARNED)
def test_warned(tmp_path: Path, body: str, message: str) -> None:
    _, found = only(tmp_path, body)
    assert message in found.warnings[0]
    assert found.warnings[0].startswith(f"{tmp_path / 'hosts.yml'}:4:")
    assert "hunter2" not in repr(found)


def test_a_common_name_with_another_meaning_does_not_win(tmp_path: Path) -> None:
    host, _ = only(tmp_path, "{ansible_port: 2222, port: 8080}")
    assert host.port == 2222


UNUSED = [
    "ansible_become: yes",
    "ansible_become_method: sudo",
    "ansible_perl_interpreter: /usr/bin/perl",
    "ansible_shell_type: sh",
    "ansible_winrm_transport: ntlm",
    "ansible_ssh_retries: 3",
    "{ansible_user: u, domain: '{{ x }}'}",
]


@pytest.mark.parametrize("body", UNUSED)
def test_what_fleet_does_not_need_is_kept_out_silently(tmp_path: Path, body: str) -> None:
    _, found = only(tmp_path, body)
    assert found.warnings == ()
    assert len(found.ignored) == 1


def test_odd_parts_of_groups(tmp_path: Path) -> None:
    text = "g:\n  hosts: {a: {ansible_user: u}}\n  hotss: {b: }\n  remarks: x\n"
    found = reading(tmp_path, text)
    assert found.errors == ()
    assert "did you mean 'hosts'?" in found.warnings[0]
    assert "fleet ignores 'remarks', because a group has no such key" in found.warnings[1]


def test_one_name_without_a_colon(tmp_path: Path) -> None:
    text = "g: {hosts: evk1, children: h, vars: {ansible_user: u}}\nh: {hosts: {evk2: }}\n"
    found = reading(tmp_path, text).inventory
    assert found is not None
    assert found.groups["g"] == ("evk1", "evk2")


# What `ansible-inventory --list` of ansible-core 2.19 says of this file.
DEPTHS = """
all:
  vars: {ansible_user: all}
  children:
    zeta: {hosts: {evk: , 'r[01:02]x': }, vars: {ansible_user: zeta, ansible_port: 1}}
    alpha: {hosts: {evk: }, vars: {ansible_user: alpha, ansible_group_priority: 10}}
    a: {children: {b: }}
    b: {children: {deep: }, vars: {ansible_port: 7}}
    deep: {hosts: {evk: , evk2: {ansible_port: "22"}}, vars: {ansible_host: deep}}
    zzz: {hosts: {evk2: }, vars: {ansible_host: zzz, ansible_user: q}}
    late: {children: {zeta: }, vars: {ansible_user: late}}
"""


def test_depths_as_ansible_counts_them(tmp_path: Path) -> None:
    found = reading(tmp_path, DEPTHS).inventory
    assert found is not None
    assert [(host.name, host.address, host.user, host.port) for host in found.hosts] == [
        ("evk", "deep", "zeta", 1),
        ("r01x", "r01x", "zeta", 1),
        ("r02x", "r02x", "zeta", 1),
        ("evk2", "deep", "q", 22),
    ]


def test_strict_again_without_an_ansible_key(tmp_path: Path) -> None:
    found = reading(tmp_path, "g: {hosts: {a: {http_port: 80}}}")
    assert not found.ansible
    assert "unknown key 'http_port'" in found.errors[0].message


ARGS = [
    ("-J a", {"proxy_jump": "a"}, 0),
    ("-Ja", {"proxy_jump": "a"}, 0),
    ("-J a -J b", {"proxy_jump": "a"}, 0),
    ("-o ProxyJump=a", {"proxy_jump": "a"}, 0),
    ("-oProxyJump=a", {"proxy_jump": "a"}, 0),
    ("-o 'proxyjump a'", {"proxy_jump": "a"}, 0),
    ("-o ProxyJump=none", {}, 1),
    ("-F f -J a", {"ssh_config": "f", "proxy_jump": "a"}, 0),
    ("-o ControlMaster=auto -o ControlPersist=60s", {}, 2),
    ("-i key -p 22 -l me", {}, 3),
    ("-C -4 -J a", {"proxy_jump": "a"}, 2),
    ("-J", {}, 1),
    ("word", {}, 1),
    ("-o 'x", {}, 1),
    ("", {}, 0),
]


@pytest.mark.parametrize(("text", "known", "remarks"), ARGS)
def test_ssh_arguments(text: str, known: dict[str, str], remarks: int) -> None:
    got, unused = understand(text)
    assert got == known
    assert len(unused) == remarks


@pytest.mark.parametrize(
    ("command", "jump"),
    [
        ("ssh -W %h:%p gw", "gw"),
        ("ssh -q -p 2222 -W %h:%p me@192.0.2.9 -o ProxyCommand=none", "me@192.0.2.9:2222"),
        ("ssh -Aqp22 -W%h:%p gw", "gw:22"),
        ("ssh -W %h:%p -i other_key gw", None),
        ("ssh -W %h:%p -- -oProxyCommand=evil", None),
        ("ssh -W %h:%p gw reboot", None),
        ("nc -X 5 -x 192.0.2.9:1080 %h %p", None),
    ],
)
def test_a_proxy_command_is_a_jump_or_takes_the_host_out(
    tmp_path: Path, command: str, jump: str | None
) -> None:
    """Connecting without the proxy would reach another machine, or none."""
    path = tmp_path / "hosts.yml"
    path.write_text(
        "all:\n  hosts:\n    b1: {ansible_host: 192.0.2.5, ansible_ssh_common_args: "
        f"'-o ProxyCommand=\"{command}\"'}}\n"
    )
    found = load_inventory(path)
    if jump is not None:
        assert [host.proxy_jump for host in found.hosts] == [jump]
        return
    assert found.hosts == ()
    assert "does not run the ProxyCommand" in found.left_out["b1"]


def test_a_password_that_cannot_be_hidden_takes_its_host_out(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("b1 ansible_user=u\nb2 ansible_ssh_pass=Q\n")
    found = load_inventory(path)
    assert [host.name for host in found.hosts] == ["b1"]
    assert "fewer than 4 characters" in found.left_out["b2"]
