"""What a computer lacks: all of it in one message, with one command, without fleet's packages."""

from __future__ import annotations

import glob
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.lab import host

ROOT = Path(__file__).parents[2]
LACKS = [("the module venv of Python", "python3-venv"), ("the program tar", "tar")]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The programs that this computer has; a test adds some."""
    there: set[str] = set()
    monkeypatch.setattr(host, "find", lambda name: f"/usr/bin/{name}" if name in there else None)
    monkeypatch.setattr(host, "has_library", lambda _: "libatomic.so.1" in there)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return there


def test_everything_is_listed_at_once_with_one_command(
    programs: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    programs |= {"apt-get", "dpkg-deb", "mount"}
    monkeypatch.setattr(host, "KEYS", ())
    lacks = host.lab_needs()
    assert [package for _, package in lacks] == [
        "debian-archive-keyring", "tar", "util-linux", "util-linux",
    ]  # fmt: skip
    message, command = host.missing_message(LACKS + lacks)
    assert all(what in message for what, _ in lacks)
    assert command.count("apt-get install") == 1
    assert command.count("util-linux") == 1
    assert all(f" {package}" in command for _, package in LACKS + lacks)


def test_a_computer_with_sshd_and_libatomic_needs_no_apt(programs: set[str]) -> None:
    programs |= {"sshd"}
    (lacking,) = host.lab_needs()
    assert lacking[0].startswith("libatomic.so.1, from the package manager")
    assert host.missing_message([lacking])[1] == ""
    programs |= {"libatomic.so.1"}
    assert host.lab_needs() == []


def test_another_machine_is_said(programs: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    programs |= {"sshd", "libatomic.so.1"}
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    ((words, package),) = host.lab_needs()
    assert "this is Linux on aarch64" in words
    assert not package


@pytest.mark.parametrize(
    ("user", "has", "line"),
    [
        (0, set(), "apt-get install -y --no-install-recommends tar"),
        (1000, {"sudo"}, "sudo apt-get install -y --no-install-recommends tar"),
        (1000, set(), "su -c 'apt-get install -y --no-install-recommends tar'"),
    ],
)
def test_the_command_is_for_who_types_it(
    programs: set[str], monkeypatch: pytest.MonkeyPatch, user: int, has: set[str], line: str
) -> None:
    programs |= has
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(glob, "glob", lambda _: ["/var/lib/apt/lists/x_Packages"])
    assert host.command(["tar"]) == line
    monkeypatch.setattr(glob, "glob", lambda _: [])
    assert host.command(["tar"]).count("apt-get update && ") == 1


def test_it_runs_before_anything_is_installed(tmp_path: Path) -> None:
    """As make runs it: no package of fleet's, none of its folders on the path."""
    lacking = tmp_path / "lacking.py"
    lacking.write_text(
        "import importlib.util as u, runpy, sys\n"
        "real = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'ensurepip' else real(name, *more)\n"
        "runpy.run_path(sys.argv[1], None, '__main__')\n"
    )
    argv = [sys.executable, "-I", "-S", str(lacking), str(ROOT / "fleet/lab/host.py")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    message, cure = done.stderr.splitlines()
    assert message == "error: this computer is missing: the module venv of Python"
    assert cure.startswith("  try: ")
    assert "-venv" in cure
