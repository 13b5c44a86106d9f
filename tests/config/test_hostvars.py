from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from fleet.config.hostvars import HOST_KEYS, SECTIONS, inventory_schema
from fleet.config.problems import Problems
from fleet.config.settings import check
from fleet.config.yamlpos import Document, Keys, Spot
from fleet.model.errors import InventoryError
from fleet.model.inventory import Host

# What the inventories of the tests, the examples and the documents write.
PLAIN: dict[str, list[object]] = {
    "transport": ["ssh", "local", "adb"],
    "host": ["evk1", "10.0.0.9", "fe80::1%eth0", "evk.example.org"],
    "port": [1, 22, 65535],
    "user": ["root", "u0_a1", "first.last"],
    "identity_file": ["~/.ssh/id", ["a b", "/c"], []],
    "key_passphrase": ["env:KEY", "file:~/pass", "cmd:pass show x"],
    "password": ["env:PW"],
    "become_password": ["file:/run/secret"],
    "proxy_jump": ["bastion", "me@one:2222,two"],
    "ssh_config": ["config"],
    "known_hosts": ["../keys"],
    "host_key": ["SHA256:" + "A" * 43, "SHA256:" + "b" * 43 + "="],
    "connect_timeout": [5, 0.5, "90s", "500ms", "7", "1.5m"],
    "base_dir": ["~/fleet", "/opt/npu-fleet", "~/a.b/c_d"],
    "soc": ["QCS9075", "SM8750"],
    "os": ["linux", "windows"],
    "target": ["aarch64-oe-linux-gcc11.2", "x86_64-linux-clang"],
    "serial": ["usb:1-4.2", "127.0.0.1:5555"],
    "adb_server": ["127.0.0.1:5037"],
    "identity": ["SHA256:abc", "R5CT"],
    "until": ["2026-11-28T09:30:00Z"],
    "labels": [{}, {"lan": "shelf 1", "rack": "2"}],
}
WORDS = [each for values in PLAIN.values() for each in values] + [
    None, True, False, 0, -1, 65536, 2**40, 0.0, -2.5, 1e9, float("inf"), float("nan"),
    "", " ", "-a", "a b", "a,b", "user@host", "{{ x }}", "{% x %}", "a\nb", "evk1\n", "ä", "\ud800",
    "SSH", "env:", "env:1", "8d", "0s", "169h", "soon", "~", "/", "~/", "~/..", "/a/../b", "/a/",
    "C:\\fleet", "~/.x", "qcs9075", ["a", 1], ["a\n"], [None], {"a": 1}, {"a": "{{ b }}"}, {1: "a"},
    {"ä": "b"}, {"a": "ä"}, [], {}, object(),
]  # fmt: skip


SCHEMA = inventory_schema()
HOST = Draft202012Validator({**SCHEMA["$defs"]["HostVars"], "$defs": SCHEMA["$defs"]})
PLACE = ("evk", "key")


def taken(name: str, value: object) -> object:
    """What a host gets, or an InventoryError."""
    spots: dict[Keys, Spot] = {(): (1, 1), PLACE: (1, 1)}
    document = Document(Path("lab.yaml"), {}, spots, spots, {})
    problems = Problems(InventoryError)
    setting = check(document, problems, name, value, PLACE)
    assert (setting is None) == bool(problems.errors)
    problems.raise_first()
    assert setting is not None
    return setting.value


def agree(name: str, value: object) -> None:
    """The schema allows what is taken."""
    with contextlib.suppress(InventoryError):
        taken(name, value)
        HOST.validate({name: value})


def test_the_names_are_those_of_the_model() -> None:
    fields = {field.name for field in dataclasses.fields(Host)} - {"name", "groups"}
    kept = {"host": "address", "identity_file": "identity_files"}
    assert {kept.get(name, name) for name in HOST_KEYS} == fields
    assert tuple(SCHEMA["$defs"]["GroupBody"]["properties"]) == tuple(SECTIONS)
    with pytest.raises(InventoryError, match="unknown key 'prot'"):
        taken("prot", 22)


@pytest.mark.parametrize("name", HOST_KEYS)
def test_what_people_write_is_plain(name: str) -> None:
    for value in [*PLAIN[name], None]:
        taken(name, value)
        HOST.validate({name: value})


@pytest.mark.parametrize("name", HOST_KEYS)
def test_nothing_is_taken_that_the_schema_refuses(name: str) -> None:
    for value in WORDS:
        agree(name, value)


@given(
    st.sampled_from(tuple(HOST_KEYS)), st.text() | st.integers() | st.floats() | st.lists(st.text())
)
@example("base_dir", "~/a//b")
@example("port", 22)
def test_of_anything_at_all(name: str, value: object) -> None:
    agree(name, value)


def test_values_are_brought_into_one_form() -> None:
    assert taken("identity_file", "~/.ssh/id") == ["~/.ssh/id"]
    assert taken("connect_timeout", "1.5m") == 90.0
    assert type(taken("connect_timeout", 5)) is float
    assert taken("base_dir", "~/fleet/") == "~/fleet"
    assert taken("base_dir", "C:\\fleet") == "C:/fleet"


def test_each_item_that_is_wrong_is_named() -> None:
    spots: dict[Keys, Spot] = {(): (1, 1), PLACE: (1, 1), (*PLACE, 0): (2, 3), (*PLACE, 2): (4, 3)}
    problems = Problems(InventoryError)
    document = Document(Path("lab.yaml"), {}, spots, spots, {})
    assert check(document, problems, "identity_file", ["a\n", "b", 3], PLACE) is None
    assert [error.position and error.position.line for error in problems.errors] == [2, 4]
