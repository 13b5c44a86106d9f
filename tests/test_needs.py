"""A program that a machine has not: the test is skipped, and the summary says for lack of what."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fleet.lab.rootfs import require
from fleet.model.errors import LabError
from tests import needs

ROOT = Path(__file__).parents[1]


def test_a_program_that_is_nowhere_skips() -> None:
    with pytest.raises(pytest.skip.Exception, match="no nosuch on this machine: apt-get install x"):
        needs.tool("nosuch", "x")


def test_a_compiler_without_a_c_library_skips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's gcc does not bring libc6-dev."""
    (tmp_path / "gcc").write_text("#!/bin/sh\necho stdio.h: No such file >&2; exit 1\n")
    (tmp_path / "gcc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    needs._compiler.cache_clear()
    with pytest.raises(pytest.skip.Exception, match="gcc libc6-dev"):
        needs.compiler()
    needs._compiler.cache_clear()


def test_a_program_that_a_test_starts_skips_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(needs.LAB_PACKAGES, "openssh", "nosuch")
    calls: dict[str, Callable[[], object]] = {
        "nosuch": lambda: subprocess.run(["nosuch"], check=False),
        "openssh": lambda: require({"nosuch": "openssh"}),
    }
    for name, call in calls.items():
        with pytest.raises(pytest.skip.Exception, match=name), needs.missing_programs():
            call()
    monkeypatch.setitem(needs.LAB_PACKAGES, "openssh", "sh")
    for error in (
        FileNotFoundError(2, "No such file", "/no/such"),
        LabError("it is down"),
        LabError("not installed: openssh"),
    ):
        with pytest.raises(type(error)), needs.missing_programs():
            raise error


def test_a_library_that_is_nowhere_skips() -> None:
    with pytest.raises(pytest.skip.Exception, match="apt-get install libnosuch1"):
        needs.library("libnosuch.so.1", "libnosuch1")


def test_the_summary_counts_by_reason() -> None:
    reasons = ["Skipped: no a", "needs root", "Skipped: no\n a"]
    assert needs.summary(reasons) == ["     2  no a", "     1  needs root"]


def test_a_run_tells_what_was_skipped_and_leaves_the_gate_out_of_a_folder() -> None:
    """The case of another shell is skipped without that shell, as is said at the end."""
    test = "tests/facts/test_probe.py::test_libraries_and_paths"
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0"]
    env = {"PATH": "/nowhere", "HOME": str(ROOT)}
    done = subprocess.run(
        [*argv, test], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert "1  no mksh on this machine: apt-get install mksh" in done.stdout, done.stdout
    assert "failed" not in done.stdout.splitlines()[-1]
    listed = subprocess.run(
        [*argv, "--collect-only", "tests/facts"], cwd=ROOT, capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip
    assert "[dash" in listed
    assert "[mksh" not in listed
    assert "deselected" in listed.splitlines()[-1]


def test_hypothesis_measures_no_time() -> None:
    assert settings.default is not None
    assert settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check
    own = [
        path.name
        for path in ROOT.glob("tests/**/test_*.py")
        if re.search(r"settings\([^)]*deadline=", path.read_text("utf-8"))
    ]
    assert own == []
