"""The archive of a selftest: what a stranger reads, what is not in it, and what is refused."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from msgspec import structs

from fleet.doctor.bundle import write_archive
from fleet.lab.profiles import phone_profile, profile
from fleet.lab.recorded import MOST_BYTES, MOST_MEMBERS, recorded
from fleet.model.errors import LabError
from fleet.model.facts import Android, DeviceNode, Facts, Soc, ThermalZone
from fleet.model.plain import to_plain
from fleet.selftest.archive import selftest_members
from fleet.selftest.ladder import FELL, HOLDS, UNDECIDED, Climbed, RungResult, rungs

FACTS = Facts(
    hostname="bench-seven",
    machine_id="0123456789abcdef0123456789abcdef",
    serial_number="SN12345678",
    os_id="ubuntu",
    os_name="Ubuntu 24.04.1 LTS",
    os_version="24.04",
    kernel="6.8.0-1052-qcom",
    machine="aarch64",
    soc=Soc(676, "QCS9075", ("qcom,qcs9075",), "Lemans EVK", "QCS9075", 77, hexagon_arch="v73"),
    nodes=(
        DeviceNode("/dev/fastrpc-cdsp", True, "600", "root", "root", "EACCES"),
        DeviceNode("/dev/../tmp/x; reboot", True, "666", "root", "root", ""),
    ),
    libcdsprpc=("/usr/lib/libcdsprpc.so",),
    thermal=(ThermalZone("thermal_zone0", "nspss-0", 41.3),),
    remoteproc=(("cdsp", "running"), ("x; reboot", "running")),
)
SECRETS = ("bench-seven", "0123456789abcdef0123456789abcdef", "SN12345678", "10.1.2.3", "alice")


def climbed(facts: Facts = FACTS) -> Climbed:
    words = f"host {SECRETS[0]} at 10.1.2.3, /home/alice/x, serial {SECRETS[2]}"
    steps = [
        RungResult(rung, FELL, "nothing wrong", "open: EACCES", words)
        if rung.id == "nodes"
        else RungResult(rung, UNDECIDED, "", "", reason="no --runtime")
        if "nodes" in rung.needs
        else RungResult(rung, HOLDS, "a", "b")
        for rung in rungs()
    ]
    parts = {
        "facts": json.dumps(to_plain(facts)),
        "packages": "qcom-fastrpc1 1.0.0-8~bpo13+1 installed\nlibtirpc3 1.3 installed\n",
        "getprop": "[ro.soc.model]: [SM8650]\n[ro.serialno]: [SN12345678]\n",
        "rules": f"# of {SECRETS[0]}\n",
    }
    return Climbed("evk-07", facts, "2.51.0.260929181845", steps, parts)


def packed(folder: Path, *found: Climbed) -> Path:
    path = folder / "selftest.tar.gz"
    write_archive(path, selftest_members(found), hint="")
    return path


def texts(path: Path) -> dict[str, str]:
    with tarfile.open(path) as tar:
        return {m.name: (tar.extractfile(m) or io.BytesIO()).read().decode() for m in tar}


def test_a_stranger_reads_board_versions_and_the_first_broken_assumption(tmp_path: Path) -> None:
    found = texts(packed(tmp_path, climbed()))
    summary = found["selftest/device-1/summary.md"]
    top = "".join(summary.splitlines(keepends=True)[:16])
    for said in (
        "Lemans EVK",
        "QCS9075 (v73)",
        "Ubuntu 24.04.1",
        "2.51.0.260929181845",
        "qcom-fastrpc1 1.0.0-8",
    ):
        assert said in top
    assert "**First broken assumption:** A12" in top
    assert "fleet.bundles.rules_device:fastrpc_node" in summary
    assert "expected: nothing wrong; seen: open: EACCES" in summary
    assert "tirpc" not in summary
    assert "fleet's words: `rungs/06-nodes.txt`, the device's own: `raw/`" in summary
    assert "**next:** `fleet doctor " in summary
    assert "6.8.0-1052-qcom (" not in summary, "a real board's kernel is its own"
    (words,) = re.findall(r"words: `(.*?)`", summary)
    assert "serial" in found[f"selftest/device-1/{words}"]


def test_a_climb_that_ended_early_says_so(tmp_path: Path) -> None:
    short = replace(climbed(), steps=climbed().steps[:1], ended="the lease is lost")
    summary = texts(packed(tmp_path, short))["selftest/device-1/summary.md"]
    assert "**Ended early** after 1 rungs: the lease is lost" in summary
    assert "**First broken assumption:** none before that" in summary
    assert "Ended early" not in texts(packed(tmp_path, climbed()))["selftest/device-1/summary.md"]


def test_what_is_of_the_computer_that_emulates_a_board_says_so(tmp_path: Path) -> None:
    summary = texts(packed(tmp_path, climbed(structs.replace(FACTS, lab=True))))
    assert "qcom (of the emulation)" in summary["selftest/device-1/summary.md"]


def test_nothing_in_it_tells_who_it_was(tmp_path: Path) -> None:
    whole = "\n".join(texts(packed(tmp_path, climbed())).values())
    assert [word for word in (*SECRETS, "evk-07") if word in whole] == []
    assert "qcom-fastrpc1" in whole


def test_a_host_name_that_is_the_chips_is_no_secret(tmp_path: Path) -> None:
    facts = structs.replace(FACTS, hostname="qcs9075")
    summary = texts(packed(tmp_path, climbed(facts)))["selftest/device-1/summary.md"]
    assert "QCS9075" in summary


def test_an_archive_becomes_a_lab_board(tmp_path: Path) -> None:
    text, lacking = recorded(packed(tmp_path, climbed()))
    path = tmp_path / "recorded.yaml"
    path.write_text(text)
    board = profile(str(path))
    assert board.sys["devices/soc0/soc_id"] == b"676\n"
    assert board.nodes == ("fastrpc-cdsp",), "a name that no node has is left out"
    assert board.node == "600 root:root"
    assert board.sys["class/thermal/thermal_zone0/temp"] == b"41300\n"
    assert b"Ubuntu 24.04.1 LTS" in board.root["/usr/lib/os-release"]
    assert "reboot" not in text
    assert "qcom-fastrpc1 1.0.0-8~bpo13+1" in lacking
    assert "tirpc" not in lacking
    assert "A12 fleet.bundles.rules_device:fastrpc_node" in lacking


def test_a_chip_that_no_table_lists_gives_a_row(tmp_path: Path) -> None:
    soc = structs.replace(FACTS.soc, chip=None, kernel_soc_id=9999)
    _, lacking = recorded(packed(tmp_path, climbed(structs.replace(FACTS, soc=soc))))
    assert "kernel_soc_ids: [9999]" in lacking


def test_an_archive_of_a_phone_becomes_a_lab_phone(tmp_path: Path) -> None:
    facts = structs.replace(FACTS, android=Android(release="14", selinux="Enforcing"))
    text, _ = recorded(packed(tmp_path, climbed(), climbed(facts)), device=2)
    path = tmp_path / "phone.yaml"
    path.write_text(text)
    assert b"ro.soc.model=SM8650" in phone_profile(str(path), "LAB1").root["/system/build.prop"]
    assert "SN12345678" not in text


def _member(
    name: str = "x", kind: bytes = tarfile.REGTYPE, size: int = 0
) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with tarfile.open(path, "w:gz", compresslevel=1) as tar:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, size, "/etc/passwd"
            tar.addfile(info, io.BytesIO(bytes(size)))

    return write


def _many(path: Path) -> None:
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for number in range(MOST_MEMBERS + 1):
            tar.addfile(tarfile.TarInfo(f"f{number}"))


def _facts(text: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with tarfile.open(path, "w:gz") as tar:
            for name, data in (("raw/facts.json", text), ("selftest.json", text)):
                info = tarfile.TarInfo(f"selftest/device-1/{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data.encode()))

    return write


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (_member("../../etc/cron.d/x"), "not a plain file"),
        (_member("/etc/cron.d/x"), "not a plain file"),
        (_member("a", tarfile.SYMTYPE), "not a plain file"),
        (_member("a", tarfile.LNKTYPE), "not a plain file"),
        (_member("a", tarfile.FIFOTYPE), "not a plain file"),
        (_member("a", size=MOST_BYTES + 1), "more than 64 MiB"),
        (_many, "more than 500 files"),
        (_member(), "selftest/device-1.* is missing"),
        (_facts("[" * 5000), "not an archive of a self-test"),
        (_facts('{"android": null, "soc": 7}'), "os_name is missing"),
        (_facts("[]"), "not an archive of a self-test"),
        (lambda path: path.write_bytes(b"PK"), "cannot read the archive"),
        (lambda path: path.write_bytes(b""), "cannot read the archive"),
        (lambda _: None, "cannot read the archive"),
    ],
)
def test_a_hostile_archive_is_refused(
    tmp_path: Path, write: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "x.tar.gz"
    write(path)
    with pytest.raises(LabError, match=message) as caught:
        recorded(path)
    assert caught.value.hint
    assert [found.name for found in tmp_path.iterdir()] in (["x.tar.gz"], [])


@pytest.mark.parametrize("text", ["", "[]", "a: 1", "a: {}\nb: {}", "a: {", "\0"])
def test_a_file_that_is_no_profile_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(LabError, match="does not describe a lab board"):
        profile(str(path))


def test_a_profile_is_plain_data(tmp_path: Path) -> None:
    text, _ = recorded(packed(tmp_path, climbed()))
    assert list(yaml.safe_load(text)) == ["recorded-qcs9075"]
