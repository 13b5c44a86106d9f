from __future__ import annotations

from pathlib import Path

import pytest

from fleet.config.inventory import load_inventory, read_inventory
from fleet.model.errors import InputError, InventoryError
from fleet.model.inventory import Host, Inventory
from fleet.model.plain import to_plain


def write(folder: Path, text: str) -> Path:
    path = folder / "lab.yaml"
    path.write_text(text, "utf-8")
    return path


def load(folder: Path, text: str) -> Inventory:
    return load_inventory(write(folder, text))


def host(folder: Path, body: str) -> Host:
    return load(folder, f"all:\n  hosts:\n    evk:\n      {body}\n").hosts[0]


def test_all_keys_of_a_host(tmp_path: Path) -> None:
    pin = "SHA256:" + "A" * 43
    found = load(
        tmp_path,
        f"""
evks:
  hosts:
    evk1:
      transport: ssh
      host: 192.0.2.7
      port: 2222
      user: ubuntu
      identity_file: [keys/a, /etc/b]
      password: env:PW
      become_password: file:secrets/sudo
      key_passphrase: env:KP
      proxy_jump: root@gw:22,inner
      ssh_config: ssh/config
      known_hosts: kh
      host_key: {pin}
      connect_timeout: 1.5m
      base_dir: ~/fleet/
      soc: QCS9075
      target: aarch64-oe-linux-gcc11.2
      serial: abc123
      identity: box-7
      labels: {{rack: "3"}}
""",
    )
    only = found.hosts[0]
    assert only.password is not None
    assert only.become_password is not None
    assert only == Host(
        "evk1",
        "ssh",
        "192.0.2.7",
        2222,
        "ubuntu",
        (tmp_path / "keys/a", Path("/etc/b")),
        only.password,
        only.become_password,
        "root@gw:22,inner",
        tmp_path / "ssh/config",
        tmp_path / "kh",
        pin,
        90.0,
        "~/fleet",
        "QCS9075",
        "aarch64-oe-linux-gcc11.2",
        "abc123",
        "box-7",
        ("evks",),
        {"rack": "3"},
        only.key_passphrase,
    )
    assert only.key_passphrase is not None
    assert only.key_passphrase.reference == "env:KP"
    assert only.password.reference == "env:PW"
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/sudo").write_text("s3cret\n")
    assert only.become_password.get().reveal() == "s3cret"
    assert found.path == tmp_path / "lab.yaml"
    assert found.warnings == ()


def test_defaults_and_null_body(tmp_path: Path) -> None:
    found = load(tmp_path, "all:\n  hosts:\n    evk1:\n    192.0.2.10:\n    1001: {}\n")
    assert [each.name for each in found.hosts] == ["evk1", "192.0.2.10", "1001"]
    assert [each.address for each in found.hosts] == ["evk1", "192.0.2.10", "1001"]
    assert found.hosts[0] == Host("evk1", address="evk1", known_hosts=tmp_path / "lab.known_hosts")


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert host(tmp_path, "identity_file: ~/.ssh/id").identity_files == (Path("/home/me/.ssh/id"),)
    write(tmp_path, "all: {hosts: {evk: {identity_file: k}}}")
    monkeypatch.chdir(tmp_path)
    assert load_inventory(Path("lab.yaml")).hosts[0].identity_files == (tmp_path / "k",)
    with pytest.raises(InventoryError, match="names a user that does not exist"):
        host(tmp_path, "identity_file: ~nobody-of-that-name/k")


@pytest.mark.parametrize(
    ("text", "seconds"), [("7", 7.0), ("0.5", 0.5), ("300ms", 0.3), ("'2 m'", 120.0)]
)
def test_durations(tmp_path: Path, text: str, seconds: float) -> None:
    assert host(tmp_path, f"connect_timeout: {text}").connect_timeout == pytest.approx(seconds)


ORDER = """
all:
  vars: {user: all, base_dir: /all, soc: QCS1000, target: x86_64-all, labels: {a: all, b: all}}
  children:
    parent:
      vars: {base_dir: /parent, soc: QCS2000, target: x86_64-parent, labels: {b: parent}}
      children:
        child:
          vars: {soc: QCS3000, target: x86_64-child}
          hosts:
            evk:
              target: x86_64-host
              labels: {c: host}
"""


def test_all_then_parent_then_child_then_host(tmp_path: Path) -> None:
    only = load(tmp_path, ORDER).hosts[0]
    assert (only.user, only.base_dir, only.soc, only.target) == (
        "all",
        "/parent",
        "QCS3000",
        "x86_64-host",
    )
    assert only.labels == {"a": "all", "b": "parent", "c": "host"}
    assert only.groups == ("parent", "child")


PEERS = """
zeta: {hosts: {evk: }, vars: {user: zeta%s}}
alpha: {hosts: {evk: }, vars: {user: alpha%s}}
"""


@pytest.mark.parametrize(
    ("zeta", "alpha", "user"),
    [
        ("", "", "zeta"),
        ("", ", ansible_group_priority: 10", "alpha"),
        (", ansible_group_priority: 11", ", ansible_group_priority: 10", "zeta"),
        (", ansible_group_priority: 0", "", "alpha"),
        ("", ", ansible_group_priority: '5'", "alpha"),
    ],
)
def test_same_depth_is_alphabetical_unless_priority_says_else(
    tmp_path: Path, zeta: str, alpha: str, user: str
) -> None:
    found = load(tmp_path, PEERS % (zeta, alpha))
    assert found.hosts[0].user == user
    assert found.warnings == ()


def test_depth_is_the_longest_way(tmp_path: Path) -> None:
    text = """
a: {children: {b: }}
b: {children: {deep: }}
deep: {hosts: {evk: }, vars: {user: deep}}
zzz: {hosts: {evk: }, vars: {user: zzz}}
all: {children: {deep: }}
"""
    assert load(tmp_path, text).hosts[0].user == "deep"


def test_groups_defined_elsewhere_and_in_pieces(tmp_path: Path) -> None:
    text = """
prod: {children: {evks: , phones: }}
evks: {hosts: {'evk[1:2]': }}
phones:
  children:
    evks: {hosts: {evk3: }, vars: {user: root}}
empty:
"""
    found = load(tmp_path, text)
    assert found.groups == {
        "all": ("evk1", "evk2", "evk3"),
        "prod": ("evk1", "evk2", "evk3"),
        "evks": ("evk1", "evk2", "evk3"),
        "phones": ("evk1", "evk2", "evk3"),
        "empty": (),
        "ungrouped": (),
    }
    assert {each.user for each in found.hosts} == {"root"}


def test_ungrouped(tmp_path: Path) -> None:
    found = load(tmp_path, "all: {hosts: {a: , b: }}\ng: {hosts: {b: }}\nungrouped: {hosts: {c: }}")
    assert found.groups["ungrouped"] == ("a", "c")
    assert [each.groups for each in found.hosts] == [(), ("g",), ()]


def test_ports_in_names(tmp_path: Path) -> None:
    found = load(tmp_path, "all: {hosts: {'a:2222': , 'b:2222': {port: 1}, '[2001:db8::1]:22': }}")
    assert [(each.name, each.port) for each in found.hosts] == [
        ("a", 2222),
        ("b", 1),
        ("2001:db8::1", 22),
    ]


def test_null_unsets_and_empty_is_refused(tmp_path: Path) -> None:
    text = "all:\n  vars: {user: u, labels: {a: b}, port: 3}\n  hosts:\n    evk: {%s}\n"
    only = load(tmp_path, text % "user: null, labels: ~, port: null").hosts[0]
    assert (only.user, only.labels, only.port) == (None, {}, None)
    with pytest.raises(InventoryError, match="'user' has no value") as caught:
        load(tmp_path, text % "user: ")
    assert str(caught.value.position) == f"{tmp_path / 'lab.yaml'}:4:11"


def test_anchors_and_merge_keys(tmp_path: Path) -> None:
    text = """
all:
  hosts:
    a: &board {user: root, port: 2222}
    b: {<<: *board, port: 22}
"""
    found = load(tmp_path, text)
    assert [(each.user, each.port) for each in found.hosts] == [("root", 2222), ("root", 22)]


def test_host_and_group_of_one_name_is_a_warning(tmp_path: Path) -> None:
    found = load(tmp_path, "evk: {hosts: {evk: }}")
    assert "'evk' is the name of a group and of a host" in found.warnings[0]


# body of a host, column of the error, part of message and hint
BAD_VALUES = [
    ("prot: 22", 7, "unknown key 'prot'", "did you mean 'port'?"),
    ("Port: 22", 7, "unknown key 'Port'", "did you mean 'port'?"),
    ("zzz: 22", 7, "unknown key 'zzz'", "use one of: transport, host, port"),
    ("port: 0", 13, "'port' must be at least 1, not 0", ""),
    ("port: 65536", 13, "'port' must be at most 65535, not 65536", ""),
    ("port: '22'", 13, "'port' must be a whole number, not text", "remove the quotes"),
    ("port: 022", 13, "'port' must be a whole number, not text", ""),
    ("port: 22:10", 13, "'port' must be a whole number, not text", ""),
    ("port: yes", 13, "'port' must be a whole number, not a boolean", ""),
    ("port: 22.5", 13, "'port' must be a whole number, not a decimal number", ""),
    ("transport: shh", 18, "'shh' is not a value of 'transport'", "did you mean 'ssh'?"),
    ("transport: telnet", 18, "'telnet' is not a value of 'transport'", "one of: ssh, local, adb"),
    ("user: 1000", 13, "'user' must be text, and YAML reads this as a number", '"1000"'),
    ("user: no", 13, "YAML reads this as a boolean", '"no"'),
    ("user: [a]", 13, "'user' must be text, not a list", ""),
    ("user: 'a b'", 13, "'a b' is not a valid user name", "login name"),
    ("user: '-oProxyCommand=x'", 13, "is not a valid user name", ""),
    ("host: '-oProxyCommand=x'", 13, "is not a valid address", ""),
    ("host: root@192.0.2.1", 13, "is not a valid address", ""),
    ("host: ''", 13, "'' is not a valid address", ""),
    (
        "host: '{{ ip }}'",
        13,
        "template ({{ ... }}), which fleet does not evaluate",
        "without a template",
    ),
    ("proxy_jump: 'a, b'", 19, "is not a valid jump host", "no space"),
    ("host_key: MD5:aa", 17, "is not a valid fingerprint", "ssh-keygen -lf"),
    ("connect_timeout: 5 minutes", 24, "'5 minutes' is not a duration", "90s, 5m or 1h"),
    ("connect_timeout: -1", 24, "must be more than 0", "90s"),
    ("connect_timeout: .inf", 24, "between 0 and 7 days", ""),
    ("connect_timeout: yes", 24, "not a boolean", ""),
    ("base_dir: fleet", 17, "'fleet' is not a valid path for base_dir", "~/"),
    ("base_dir: /a/../b", 17, "is not a valid path for base_dir", "without .."),
    ("base_dir: /", 17, "but fleet needs a folder of its own", "~/fleet"),
    ("base_dir: ~/", 17, "but fleet needs a folder of its own", "~/fleet"),
    ("soc: IQ-9075", 12, "'IQ-9075' is not a valid chip name", "QCS9075"),
    ("soc: qcs9075", 12, "'qcs9075' is not a valid chip name", "capitals"),
    ("target: ubuntu", 15, "'ubuntu' is not a valid QAIRT target name", "aarch64-oe-linux-gcc11.2"),
    ("labels: {rack: 3}", 22, "'rack' must be text", '"3"'),
    ("labels: [a]", 15, "'labels' must be a mapping, not a list", ""),
    ("identity_file: [a, 3]", 26, "must be text", ""),
    ("identity_file: 3", 22, "'identity_file' must be a list, not a number", ""),
    ("user: !vault x", 13, "'user' is encrypted by ansible-vault", "env:NAME"),
    ("password: !vault x", 17, "'password' is encrypted by ansible-vault", "env:NAME"),
    ("ansible_group_priority: 3", 7, "unknown key 'ansible_group_priority'", "use one of:"),
]


@pytest.mark.parametrize(("body", "column", "message", "hint"), BAD_VALUES)
def test_bad_values(tmp_path: Path, body: str, column: int, message: str, hint: str) -> None:
    with pytest.raises(InventoryError) as caught:
        host(tmp_path, body)
    assert str(caught.value.position) == f"{tmp_path / 'lab.yaml'}:4:{column}"
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.exit_code == 2


# whole file, line:column, part of message and hint
BAD_FILES = [
    ("g: {hots: {a: }}", "1:5", "'hots' is not a key of a group", "did you mean 'hosts'?"),
    ("g: {port: 3}", "1:5", "'port' is not a key of a group", "move it to `vars:`"),
    ("g: {hosts: [a, b]}", "1:12", "'hosts' must be a mapping, not a list", "a colon"),
    ("g: {hosts: a}", "1:12", "'hosts' must be a mapping, not text", "a colon"),
    ("g: {children: [a]}", "1:15", "'children' must be a mapping", "a colon"),
    ("g: {vars: [a]}", "1:11", "'vars' must be a mapping", "a colon"),
    ("g: [a]", "1:4", "'g' must be a mapping", "hosts, children or vars"),
    ("g: {hosts: {a: 192.0.2.1}}", "1:16", "'a' must be a mapping, not text", "host: ADDRESS"),
    ("g: {hosts: {'a b': }}", "1:13", "'a b' is not a valid host name", "host:"),
    ("g: {hosts: {../x: }}", "1:13", "'../x' is not a valid host name", "letters"),
    ("g: {hosts: {-oX: }}", "1:13", "'-oX' is not a valid host name", "letters"),
    ("g: {hosts: {'e[3:1]': }}", "1:13", "range [3:1] runs backwards", "smaller"),
    ("g: {hosts: {'e[1:9999]': , 'f[1:9999]': }}", "1:28", "more than 10000 hosts", "several"),
    ("'!g': {hosts: {a: }}", "1:1", "'!g' is not a valid group name", "--limit"),
    ("a: {children: {b: }}\nb: {children: {a: }}", "1:1", "contains itself: a > b > a", "of 'b'"),
    ("a: {children: {a: }}", "1:1", "group 'a' contains itself: a > a", "`children:` of 'a'"),
    ("g: {children: {all: }}", "", "contains itself", "remove"),
    ("g: {vars: {ansible_group_priority: x}}", "1:36", "must be a whole number", ""),
    ("g: {vars: {usr: x}}", "1:12", "unknown key 'usr'", "did you mean 'user'?"),
]


@pytest.mark.parametrize(("text", "place", "message", "hint"), BAD_FILES)
def test_bad_files(tmp_path: Path, text: str, place: str, message: str, hint: str) -> None:
    with pytest.raises(InventoryError) as caught:
        load(tmp_path, text)
    if place:
        assert str(caught.value.position) == f"{tmp_path / 'lab.yaml'}:{place}"
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_a_long_chain_of_groups_is_refused(tmp_path: Path) -> None:
    text = "".join(f"g{n}: {{children: {{g{n + 1}: }}}}\n" for n in range(3000))
    with pytest.raises(InventoryError, match="nested more than"):
        load(tmp_path, text)


@pytest.mark.parametrize("key", ["password", "become_password", "key_passphrase"])
@pytest.mark.parametrize(
    "value",
    ["hunter2", "'hunter2 {{ x }}'", "[hunter2]", "{hunter2: x}", "ENV:hunter2", "7hunter2"],
)
def test_a_literal_secret_is_refused_and_never_shown(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(InventoryError) as caught:
        host(tmp_path, f"{key}: {value}")
    error = caught.value
    assert error.position is not None
    assert error.position.line == 4
    assert "hunter2" not in f"{error}{error!r}{error.hint}{to_plain(error)}{error.args}"


def test_a_number_as_password_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(InventoryError) as caught:
        host(tmp_path, "password: 123454321")
    assert "123454321" not in f"{caught.value}{caught.value.hint}"


def test_the_first_error_counts_the_others(tmp_path: Path) -> None:
    path = write(tmp_path, "g:\n  hosts:\n    b: {prot: 1}\n    a: {port: x, usr: y}\n")
    with pytest.raises(InventoryError) as caught:
        load_inventory(path)
    assert str(caught.value) == (
        f"{path}:3:9: unknown key 'prot' (and 2 more; to list all: fleet config check {path})"
    )
    reading = read_inventory(path)
    assert reading.inventory is None
    assert [str(each.position) for each in reading.errors] == [
        f"{path}:3:9",
        f"{path}:4:15",
        f"{path}:4:18",
    ]
    assert all(isinstance(each, InputError) for each in reading.errors)


@pytest.mark.parametrize(
    "text", ['all: {hosts: {a: {user: "\\e[31m"}}}', 'all: {hosts: {a: {"\\e[31m": 1}}}']
)
def test_messages_cannot_steer_a_terminal(tmp_path: Path, text: str) -> None:
    with pytest.raises(InventoryError, match=r"\\x1b\[31m") as caught:
        load(tmp_path, text)
    assert caught.value.message.isprintable()


def test_long_values_are_cut(tmp_path: Path) -> None:
    with pytest.raises(InventoryError) as caught:
        host(tmp_path, f"soc: {'x' * 5000}")
    assert len(str(caught.value)) < 600


def test_an_error_in_shared_vars_counts_once(tmp_path: Path) -> None:
    path = write(tmp_path, "all:\n  hosts:\n    a: &x {prot: 1}\n    b: *x\n    c[1:9]: *x\n")
    assert len(read_inventory(path).errors) == 1


def test_a_file_without_hosts(tmp_path: Path) -> None:
    assert load(tmp_path, "all:\n").hosts == ()


MISTAKES = """\
boards:
  hosts:
    evk-01: {host: "a b", port: 99999, user: me@here}
    evk-02: {transprot: ssh, connect_timeout: soon}
    evk-03: {password: hunter2, host_key: abc}
    evk-04: {soc: qcs9075, labels: [a]}
    evk-05: {base_dir: tmp, port: "22"}
  vars:
    os: beos
"""
MISTAKEN = [  # line, column, message
    (3, 20, "'a b' is not a valid address"),
    (3, 33, "'port' must be at most 65535, not 99999"),
    (3, 46, "'me@here' is not a valid user name"),
    (4, 14, "unknown key 'transprot'"),
    (4, 47, "'soon' is not a duration"),
    (
        5,
        24,
        (
            "the value is not a valid reference to a secret "
            "(the file must not contain the secret itself)"
        ),
    ),
    (5, 43, "'abc' is not a valid fingerprint of a host key"),
    (6, 19, "'qcs9075' is not a valid chip name"),
    (6, 36, "'labels' must be a mapping, not a list"),
    (7, 24, "'tmp' is not a valid path for base_dir"),
    (7, 35, "'port' must be a whole number, not text"),
    (9, 9, "'beos' is not a value of 'os'"),
]


def test_all_mistakes_are_named_at_once_each_with_its_place_and_cure(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(MISTAKES, "utf-8")
    errors = read_inventory(path).errors
    found = [(at.line, at.column, error.message) for error in errors if (at := error.position)]
    assert found == MISTAKEN
    assert all(error.hint for error in errors)
