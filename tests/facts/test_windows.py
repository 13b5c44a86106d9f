"""Facts of a Snapdragon X device. The text is written from documentation, not recorded on hardware
(dt_model says so): formats from onnxruntime-qnn's htp_usr_drv_utils.cc and Microsoft's pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tree_sitter
import tree_sitter_powershell

from fleet.device.texts import path_of
from fleet.facts.gather import gather
from fleet.facts.parse import parse
from fleet.facts.view import summary
from fleet.model.deadline import Deadline
from fleet.transport import transport_for
from tests.transport.windows.pc import a_pc

TEXT = (Path(__file__).parent / "data" / "windows-x-elite.txt").read_text("utf-8")


def changed(*pairs: tuple[str, str]) -> str:
    text = TEXT
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def test_everything_is_read() -> None:
    found = parse(TEXT)
    pc = found.windows
    assert pc is not None
    assert (found.os_family, found.machine, found.emulated) == ("windows", "arm64", True)
    assert (found.os_id, found.kernel, found.boot_id) == ("windows", "10.0.26100.4061", "boot-42")
    soc = found.soc
    assert (soc.chip, soc.soc_model, soc.hexagon_arch) == ("SC8380XP", 60, "v73")
    assert soc.source == "npu-driver"
    assert (pc.inf_code, pc.driver_qnn, pc.python_machine) == ("8380", "2.35.0.0", "arm64")
    assert [name for name, _ in pc.services] == ["qcadsprpc8380", "qcnspmcdm8380"]
    assert found.tools.python3 == "C:/Program Files/Python312-arm64/python.exe"
    assert (found.tools.python3_version, found.tools.sha256) == ("3.12.7", ("python",))
    assert found.user.name == "lab"
    assert pc.default_shell == ""
    assert found.disk.available_bytes == 209715200 * 1024


def test_a_real_device_is_not_emulated() -> None:
    assert not parse(changed(("lab\tyes\n", ""))).emulated


@pytest.mark.parametrize(
    ("pairs", "chip", "source"),
    [
        ((("8380", "9999"),), "SC8380XP", "processor"),
        ((("8380", "9999"), ("X1E80100", "X9E")), None, "unknown"),
        ((("8380", "8480"), ("X1E80100", "X2E")), "SC8480XP", "npu-driver"),
        ((("qcadsprpc8380.inf", "qcadsprpc8480.inf"),), "SC8380XP", "processor"),
    ],
)
def test_the_chip(pairs: tuple[tuple[str, str], ...], chip: str | None, source: str) -> None:
    soc = parse(changed(*pairs)).soc
    assert (soc.chip, soc.source) == (chip, source)


def test_a_driver_that_contradicts_the_processor_is_said() -> None:
    assert "SC8480XP" in parse(changed(("8380", "8480"))).soc.conflict


def test_no_python_and_no_driver_are_unknown() -> None:
    lines = [one for one in TEXT.split("\n") if not re.match("(npu_|python3|sha256)", one)]
    found = parse("\n".join(lines))
    assert found.windows is not None
    assert found.windows.services == ()
    assert found.windows.driver_qnn is None
    assert found.windows.python_machine is None
    assert found.tools.python3 is None


def test_the_view_names_what_windows_has() -> None:
    rows = dict(summary(parse(TEXT)))
    assert rows["NPU driver"].startswith("qcadsprpc8380 qcnspmcdm8380, QNN 2.35.0.0 in C:")
    assert "libc" not in rows
    assert rows["emulated"].startswith("yes")


def test_one_round_trip_over_ssh(tmp_path: Path) -> None:
    with a_pc(tmp_path) as pc:
        host = pc.host(base_dir="C:/odd 'folder'")
        link = transport_for(host)
        link.open(Deadline(10))
        found = gather(link, host, Deadline(20))
        link.close()
    assert (found.base_dir, found.store) == ("C:/odd 'folder'", False)
    assert link.traffic.round_trips == 1


@pytest.mark.parametrize("name", ["probe.ps1", "bootstrap.ps1"])
def test_the_scripts_are_powershell(name: str) -> None:
    """No PowerShell runs here: a grammar of it says at least that they can be read."""
    source = path_of(name).read_bytes()
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_powershell.language()))
    assert not parser.parse(source).root_node.has_error
    assert parser.parse(source.replace(b"}", b"", 1)).root_node.has_error
    assert source.isascii()
