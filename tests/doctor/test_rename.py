"""The doctor tries what a switch does, with the tools that devices have."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from fleet.doctor.checks import every
from fleet.doctor.examine import _FEED, Round, _probe, judge
from fleet.doctor.seen import Seen, seen
from fleet.model.diagnosis import BAD, OK, PROBLEM, UNKNOWN, Check
from fleet.model.inventory import Host
from tests.ops.test_switch import CAN, CANNOT
from tests.toolsets import toolset

from .test_probe import Fake

HOST = Host("evk-01")


def answer(tools: tuple[str, str], folder: Path, base: Path) -> str:
    place = toolset(tools[0], folder / "tools", tools[1])
    done = subprocess.run(
        [str(place / "sh"), "-c", _FEED, "fleet", str(base), "", ""],
        input=_probe(android=False),
        capture_output=True,
        text=True,
        env={"PATH": str(place), "HOME": str(folder)},
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rename(found: Seen) -> Check:
    (check,) = every(found, only=("rename",))
    return check


@pytest.mark.parametrize("tools", CAN, ids="+".join)
def test_tools_that_can(tools: tuple[str, str], tmp_path: Path) -> None:
    base = tmp_path / "not there" / "fleet"
    check = rename(seen(answer(tools, tmp_path, base), HOST))
    assert (check.status, check.facts) == (OK, {"disk.rename": "yes"}), check
    assert sorted(one.name for one in tmp_path.iterdir()) == ["tools"], "nothing is left"


def test_tools_that_cannot_are_no_healthy_device(tmp_path: Path) -> None:
    base = tmp_path / "fleet"
    base.mkdir()
    text = answer(CANNOT, tmp_path, base)
    check = rename(seen(text, HOST))
    assert check.status == BAD
    assert "mv: invalid option -- 'T'" in check.output
    found, _ = judge(Fake(text), Round(session=False, only=("rename",)))  # type: ignore[arg-type]
    assert found.verdict == PROBLEM
    assert found.causes[0].cause.id == "no-atomic-rename"
    assert not list(base.iterdir())


def test_what_a_killed_doctor_left_is_removed(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    (tmp_path / f".fleet-try-{gone.pid}").mkdir()
    (tmp_path / f".fleet-try-{os.getpid()}").mkdir()  # another doctor is at work
    answer(("coreutils", "dash"), tmp_path, tmp_path / "fleet")
    left = [one.name for one in tmp_path.iterdir() if one.name != "tools"]
    assert left == [f".fleet-try-{os.getpid()}"]


def test_not_tried_is_unknown() -> None:
    check = rename(seen("fleet-facts 1\ndisk_writable\tno\nend\n", HOST))
    assert check.status == UNKNOWN
