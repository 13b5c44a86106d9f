"""What stays in a text and what is replaced, and the table of words that stay."""

from __future__ import annotations

import json

import pytest

from fleet.data import shipped_text
from fleet.doctor.bundle import kept
from fleet.doctor.parts import own_words
from fleet.doctor.redaction import Redactor, known_words, shape
from fleet.model.facts import Facts, User
from fleet.model.plain import to_plain
from fleet.triage.knowledge import knowledge
from fleet.triage.triage import triage

from .vocabulary import FILE, no_words, tables

LOGS = [
    (cause.id, example.log)
    for cause in knowledge().causes.values()
    for example in cause.examples
    if example.facts is None
]


def test_the_example_of_every_cause_names_it_after_the_redaction_too() -> None:
    """The first cause of 273 logs is that of the text as it was."""
    changed = []
    for name, log in LOGS:
        pairs = [triage(text, of_device=True).causes[:1] for text in (log, Redactor().text(log))]
        before, after = ([one.cause.id for one in ranked] for ranked in pairs)
        if before != after:
            changed.append((name, before, after))
    assert len(LOGS) > 200
    assert changed == []


@pytest.mark.parametrize(
    "text",
    [
        "Error 0x80000406: remote_handle_open failed, err 1008",
        "error -2147482618 (2147484678), errno 13, 14001",
        "libQnnHtpV73Skel.so v2.51.0.260929181845 of /usr/lib/dsp",
        "[   12.345678] remoteproc remoteproc0: cdsp: a300000.remoteproc up at 2026-11-27T12:00:01",
        "read 268435456 bytes, size=1073741824 in 3.25 s, MemTotal_kb\t16777216",
        "crw-rw---- 1 root fastrpc 10, 60 /dev/fastrpc-cdsp",
        "qcom,qcs9075 qcom,sm8999 SA8775P 6.8.0-1052-qcom libc6 2.36-9+deb12u10",
        "generated tokens: 64, max-num-tokens 2, token limit reached",
    ],
)
def test_what_a_pattern_needs_stays(text: str) -> None:
    assert Redactor().text(text) == text


def test_the_same_text_has_the_same_placeholder_and_the_kind_is_told() -> None:
    redactor = Redactor(["evk-07"])
    line = "evk-07: zorblax opened /data/zorblax/blorp.bin at 10.1.2.3, 0xdeadbeef01 by 123456789"
    assert redactor.text(line) == (
        "device-1: <word-1> opened /data/<word-1>/<word-2>.bin at <ip-1>, <hex-1> by <number-1>"
    )
    assert redactor.text("blorp met zorblax, 10.9.9.9") == "<word-2> met <word-1>, <ip-2>"
    assert json.loads(redactor.json({"a": ["zorblax", 7, None]})) == {"a": ["<word-1>", 7, None]}


def test_a_login_that_is_a_word_goes_where_it_is_a_login() -> None:
    facts = Facts(os_id="ubuntu", user=User("ubuntu", 1000, groups_db=("ubuntu", "acmedsp")))
    own = own_words(facts)
    assert ("login", "ubuntu") in own
    text = Redactor(own=own).text("user ubuntu, uid=1000(ubuntu), acmedsp; Ubuntu, os_id ubuntu")
    assert text == "user <login-1>, uid=1000(<user-1>), <group-1>; Ubuntu, os_id ubuntu"
    raw = kept({"facts": json.dumps(to_plain(facts))}, Redactor(own=own))["facts"]
    assert json.loads(raw)["user"]["groups_db"] == ["<user-1>", "<group-1>"]
    assert json.loads(raw)["os_id"] == "ubuntu"


def test_a_part_has_what_its_filter_lets_through() -> None:
    comment, rule = "# /etc/udev/rules.d/60-x.rules\n", 'KERNEL=="x", MODE="0660"'
    disk, proc = "/dev/mapper/vg-home /srv/customer ext4 rw,uuid=on 0 0", "proc /proc proc rw 0 0"
    raw = kept(
        {
            "rules": f"{comment}# of the lab\n{rule} # y\n",
            "mounts": f"{disk}\n{proc}\n",
            "soc0": "soc_id: 676\nnvmem_uid: 77\nserial_number: 12\n",
            "cmdline": "quiet androidboot.serialno=R58 console=ttyS0 acme.key=1 ip=10.0.0.2\n",
            "getprop": "[ro.soc.model]: [SM8650]\n[ro.build.user]: [system]\n",
            "udevadm": "P: /x\nE: DEVNAME=/dev/fastrpc-cdsp\nE: ID_SERIAL=system\n",
            "uname": "Linux build 6.8.0 x86_64\n",
            "os-release": 'ID=ubuntu\nHOME_URL="system"\n',
            "../../x": "known words\n",
            "secret": "known words\n",
            "log": " \n",
        },
        Redactor(),
    )  # fmt: skip
    assert raw == {
        "rules": f"{comment}{rule}\n",
        "mounts": "<disk-1> <mount-1> ext4 rw\nproc /proc proc rw\n",
        "soc0": "soc_id: 676\n",
        "cmdline": "quiet console=ttyS0\n",
        "getprop": "[ro.soc.model]: [SM8650]\n",
        "udevadm": "E: DEVNAME=/dev/fastrpc-cdsp\n",
        "uname": "Linux <host-1> 6.8.0 x86_64\n",
        "os-release": "ID=ubuntu\n",
    }


def test_the_table_has_no_name_of_a_person_and_no_password() -> None:
    known = known_words()
    assert known & no_words() == set()
    assert {"alice", "bob", "hunter2", "hunter", "letmein", "qwerty"} & known == set()
    for name in no_words():
        assert name not in Redactor().text(f"fastrpc {name} end").split(), name


def test_the_table_is_small_sorted_and_has_the_words_of_every_cause() -> None:
    lines = [line for line in shipped_text("log_words.txt").splitlines() if line[:2] != "# "]
    assert lines == sorted(set(lines))
    assert 8000 < len(lines) < 14000
    assert FILE.stat().st_size < 100_000
    for cause in knowledge().causes.values():
        words = {shape(word) for word in cause.id.split("-")}
        assert words <= known_words(), cause.id
    assert any("fastrpc" in text for text in tables())


@pytest.mark.parametrize(
    "unit",
    [
        *("a", "a-", "a.", "aa@", "1.", "a:", "://", "=", "-----BEGIN KEY-----", "ab:"),
        *("/home/", "password ", '"', "(", "é"),
    ],
)
def test_a_text_that_a_device_made_to_hang_it_ends(unit: str) -> None:
    """64 KiB of it, the most that a part has."""
    text = unit * (65536 // len(unit))
    assert Redactor(["evk-07"], [("user", "zorblax")]).text(text) is not None
