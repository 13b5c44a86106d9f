"""Boards of an ordinary user: healthy ones have no finding, and files of their sysroot count."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from fleet.cli.doctor_view import _place
from fleet.config.inventory import load_inventory
from fleet.doctor.examine import Round, examine
from fleet.lab import Lab
from fleet.model.diagnosis import OK, PROBLEM, UNCHECKED, WARN, Diagnosis
from fleet.model.plain import to_plain
from fleet.triage.knowledge import knowledge
from tests import needs

from .conftest import ids


def look(lab: Lab) -> list[Diagnosis]:
    hosts = load_inventory(lab.inventory).hosts
    return examine(hosts, lambda _: None, Round())


def test_a_board_of_an_ordinary_user(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", count=2, kind="user", base_port=0) as lab:
        found = look(lab)
        assert [one.verdict for one in found] == [UNCHECKED] * 2, to_plain(found[0])
        assert all(one.causes == () and one.emulated for one in found)
        for file in list((tmp_path / "lab" / "boards" / "lab001").rglob("libcdsprpc.so*")):
            file.unlink()
        sick, well = look(lab)
    assert (sick.verdict, well.verdict) == (PROBLEM, UNCHECKED)
    assert ids(sick)[0] == "fastrpc-userspace-missing"


def test_only_a_program_of_the_board_makes_it_busy(tmp_path: Path) -> None:
    needs.tool("ps", "procps")
    program = shutil.copy("/bin/sleep", tmp_path / "qnn-net-run")
    with Lab.up(tmp_path / "lab", count=1, kind="user", base_port=0) as lab:
        sysroot = tmp_path / "lab" / "boards" / "lab001" / "sysroot"
        assert sysroot.is_dir()
        seen = []
        for root in (f"{sysroot}0", str(sysroot)):
            with subprocess.Popen(
                [program, "60"], env={**os.environ, "FLEET_SYSROOT": root}
            ) as run:
                (found,) = look(lab)
                run.kill()
            seen.append({check.id: check.facts for check in found.checks}["busy"])
    assert seen == [{"device.busy": "no"}, {"device.busy": "yes"}]


def test_a_board_without_a_shell_of_the_dsp(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", count=1, kind="user", base_port=0) as lab:
        before = {check.id: check for check in look(lab)[0].checks}
        for file in (tmp_path / "lab" / "boards" / "lab001").rglob("fastrpc_shell*"):
            file.unlink()
        (found,) = look(lab)
    assert (before["shells"].status, before["shells"].facts) == (OK, {"dsp.shell": "present"})
    after = {check.id: check for check in found.checks}["shells"]
    assert (after.status, after.facts) == (WARN, {"dsp.shell": "absent"})
    assert "/usr/share/hexagon-dsp" in after.text


def test_a_fix_says_on_which_computer_it_is_typed(tmp_path: Path) -> None:
    """The loader of a board of an ordinary user is that of this computer; its /usr is not."""
    with Lab.up(tmp_path / "lab", count=1, kind="user", base_port=0) as lab:
        (found,) = look(lab)
    link = next(check for check in found.checks if check.id == "link")
    assert link.facts["device.local"] == "libraries"
    causes = knowledge().causes
    places = {
        (cause, local): {_place(fix, local) for fix in causes[cause].fixes("linux", {})}
        for cause in ("host-lib-missing", "fastrpc-userspace-missing")
        for local in ("no", "libraries", "yes")
    }
    assert "this computer" in places["host-lib-missing", "libraries"]
    assert places["fastrpc-userspace-missing", "libraries"] == {"device"}
    assert places["host-lib-missing", "no"] == {"device"}
    assert "device" not in places["host-lib-missing", "yes"]
