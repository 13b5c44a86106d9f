"""The session test: Qualcomm's own libraries fail, and their own words name the cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.model.diagnosis import PROBLEM
from fleet.model.plain import to_plain
from tests.support_runtime import NEW, OLD, X86

from .conftest import BUNDLE, Ward, ids, stock

pytestmark = [pytest.mark.root, pytest.mark.qairt]
BIN = "bundle/tiny_genie_part_1_of_1.bin"


def lay(ward: Ward, version: str = NEW, **changes: bytes) -> None:
    """An x86_64 set-up by hand on lab002; `changes` are other contents of its context binary."""
    ward.lab.stock("lab002", stock(version, X86))
    for place, content in changes.items():
        pid = ward.lab.board("lab002").pid
        (Path(f"/proc/{pid}/root/home/ubuntu/npu") / place.replace("_", "/", 1)).write_bytes(
            content
        )


def session(ward: Ward) -> tuple[list[str], str, str]:
    found = ward.look("lab002", folders=("npu",), only=("session",))
    check = next(one for one in found.checks if one.id == "session")
    assert found.verdict == PROBLEM
    assert found.round_trips == 2
    sources = {one.source for ranked in found.causes[:1] for one in ranked.evidence}
    assert sources <= {"session log", "fleet_session"} or "session log" in sources
    return ids(found), check.text, check.output


def test_a_good_set_up_opens_a_session(ward: Ward) -> None:
    lay(ward)
    found = ward.look("lab002", folders=("npu",))
    assert found.verdict == "healthy", [to_plain(one) for one in found.causes]
    check = next(one for one in found.checks if one.id == "session")
    assert f"created with v{NEW}" in check.text


def test_a_newer_binary_on_an_older_runtime(ward: Ward) -> None:
    lay(ward, OLD)
    causes, text, output = session(ward)
    assert causes[0] == "qairt-vs-context-version"
    assert "failed with 5000" in text
    assert "Using newer context binary on old SDK" in output
    looked = ward.look("lab002", folders=("npu",))
    assert ids(looked)[0] == "qairt-vs-context-version"
    assert looked.round_trips == 1, "the marks in the file tell it without a session"


@pytest.mark.parametrize("kept", [1000, 100_000, 300_000])
def test_a_binary_that_was_cut(ward: Ward, kept: int) -> None:
    whole = (BUNDLE / "tiny_genie_part_1_of_1.bin").read_bytes()
    lay(ward, NEW, **{BIN.replace("/", "_", 1): whole[:kept]})
    causes, _, output = session(ward)
    assert causes[0] == "context-binary-corrupt", output


def test_a_library_that_does_not_load(ward: Ward) -> None:
    lay(ward)
    pid = ward.lab.board("lab002").pid
    library = Path(f"/proc/{pid}/root/home/ubuntu/npu/lib/libQnnHtp.so")
    library.write_bytes(b"\x7fELF" + bytes(2000))
    causes, text, _ = session(ward)
    assert causes, text
    assert "abi-mismatch" in causes or "host-lib-missing" in causes


def test_without_python3_the_probe_of_the_release_is_the_session(ward: Ward) -> None:
    with ward.broken("no-python3"):
        found = ward.look()
    check = next(one for one in found.checks if one.id == "session")
    assert check.status in {"bad", "unknown"}, "the Genie runner of this release is python3 too"


def test_what_a_program_told_the_system_log_alone_is_told(ward: Ward) -> None:
    """Of the seconds of the run, and nothing older."""
    log = "/var/log/syslog"
    old = "2026-01-02T03:04:05 x: open_shell failed long ago"
    ward.lab.exec("lab001", ["sh", "-c", f"echo '{old}' > {log}; chmod 666 {log}"])
    said = ward.silent(f"echo $(date +%Y-%m-%dT%T) x: apps_dev_init failed, errno 1 >> {log}")
    assert "apps_dev_init failed, errno 1" in said
    assert "long ago" not in said
