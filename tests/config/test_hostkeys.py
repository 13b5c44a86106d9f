from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from fleet.config.hostkeys import FIELDS, SECTIONS, UNSURE, plain
from fleet.config.hostvars import GroupBody, HostVars

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
    "labels": [{}, {"lan": "shelf 1", "rack": "2"}],
}
WORDS = [each for values in PLAIN.values() for each in values] + [
    None, True, False, 0, -1, 65536, 2**40, 0.0, -2.5, 1e9, float("inf"), float("nan"),
    "", " ", "-a", "a b", "a,b", "user@host", "{{ x }}", "{% x %}", "a\nb", "evk1\n", "ä", "\ud800",
    "SSH", "env:", "env:1", "8d", "0s", "169h", "soon", "~", "/", "~/", "~/..", "/a/../b", "/a/",
    "C:\\fleet", "~/.x", "qcs9075", ["a", 1], ["a\n"], [None], {"a": 1}, {"a": "{{ b }}"}, {1: "a"},
    {"ä": "b"}, {"a": "ä"}, [], {}, object(),
]  # fmt: skip


def agree(name: str, value: object) -> None:
    found = plain(name, value)
    if found is UNSURE:
        return
    try:
        known = getattr(HostVars.model_validate({name: value}), name)
    except ValidationError as error:
        pytest.fail(f"{name}: {value!r} is wrong, and was taken: {error}")
    assert (type(found), found) == (type(known), known)


def test_the_names_are_those_of_the_model() -> None:
    assert tuple(FIELDS) == tuple(HostVars.model_fields)
    assert tuple(GroupBody.model_fields) == SECTIONS
    assert plain("prot", 22) is UNSURE


@pytest.mark.parametrize("name", FIELDS)
def test_what_people_write_is_plain(name: str) -> None:
    for value in [*PLAIN[name], None]:
        assert plain(name, value) is not UNSURE
        agree(name, value)


@pytest.mark.parametrize("name", FIELDS)
def test_nothing_is_taken_that_the_model_refuses_or_reads_otherwise(name: str) -> None:
    for value in WORDS:
        agree(name, value)


@given(
    st.sampled_from(tuple(FIELDS)), st.text() | st.integers() | st.floats() | st.lists(st.text())
)
@example("base_dir", "~/a//b")
@example("port", 22)
def test_of_anything_at_all(name: str, value: object) -> None:
    agree(name, value)
