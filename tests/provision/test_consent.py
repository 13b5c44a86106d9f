"""What an installation does besides is said before it is done: by Debian's own apt, which is asked
in a root of its own, and in the words of the plan.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pysequoia
import pytest

from fleet.config.playbook import load_playbook
from fleet.device.shell import framed
from fleet.device.texts import shell_text
from fleet.engine.system.provision import system_effects
from fleet.lab.debs import Deb, write_repository
from fleet.model.system import SystemSpec
from fleet.ops.system.packaging import installed, offered, packagings, source_known
from fleet.ops.system.provision import SystemPlan
from fleet.ops.system.steps_packages import InstallPackages

from .case import BUNDLE, state_of

PPA = [
    Deb("qcom-fastrpc1", "1.0.2", depends="acl (>= 2), linux-firmware-dragonwing"),
    Deb("linux-firmware-dragonwing", "1", {"/lib/firmware/updates/x.mbn": os.urandom(300_000)}),
    Deb("acl", "2.3"),
    Deb("fastrpc", "1.0.7-3", depends="libcdsprpc1\nConflicts: board-dsp"),
    Deb("libcdsprpc1", "1.0.7-3"),
]
THERE = """\
Package: acl
Status: install ok installed
Version: 1.9
Architecture: amd64
Maintainer: x
Description: x

Package: board-dsp
Status: install ok installed
Version: 1
Architecture: amd64
Maintainer: x
Description: x
"""
CONFIGURATION = """\
Dir "{root}";
Dir::State::status "{root}/status";
Dir::Etc::sourceparts "-";
APT::Architecture "amd64";
APT::Sandbox::User "root";
"""


def asked(root: Path, *names: str) -> dict[str, list[str]]:
    """The answer of rights.sh about packages, of a machine with this apt."""
    if not shutil.which("apt-get"):
        pytest.skip("no apt-get on this machine")
    for name in ("etc/apt/preferences.d", "var/lib/apt/lists/partial", "var/cache/apt"):
        (root / name).mkdir(parents=True)
    (root / "status").write_text(THERE)
    key = pysequoia.Tsk.generate("test <test@localhost>")
    write_repository(root / "repository", PPA, key)
    (root / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:{root}/repository ./\n")
    (root / "apt.conf").write_text(CONFIGURATION.format(root=root))
    env = {**os.environ, "APT_CONFIG": str(root / "apt.conf")}
    subprocess.run(["apt-get", "update", "-qq"], env=env, check=True, capture_output=True)
    argv = ["sh", "-c", shell_text("rights"), "fleet", "no", *names]
    done = subprocess.run(argv, env=env, check=True, capture_output=True, text=True)
    assert done.stderr == ""
    assert not list((root / "var/cache/apt").rglob("*.deb")), "nothing is fetched for a plan"
    said: dict[str, list[str]] = {}
    for word, *rest in framed(done.stdout, "fleet-rights 1", "test"):
        said.setdefault(word, []).append(" ".join(rest))
    return said


def test_the_plan_says_what_comes_what_it_replaces_and_how_large_it_is(tmp_path: Path) -> None:
    said = asked(tmp_path, "qcom-fastrpc1")
    plan = SystemPlan((InstallPackages(("qcom-fastrpc1",)),))
    found = system_effects(plan, said)
    (step,) = found.steps
    text = step.describe()
    assert "with 2 more: acl, linux-firmware-dragonwing" in text
    assert "replaces acl 1.9" in text
    assert "need to get 0 B/3" in text, "300 kB and three small ones, of a local repository"
    assert "kB of archives; after this operation, " in text
    purge, back = (" ".join(command.argv) for command in step.undo())
    assert purge.endswith("-- linux-firmware-dragonwing qcom-fastrpc1"), "what was there stays"
    assert back.endswith("-- acl=1.9")
    (finding,) = found.findings
    assert (finding.rule, finding.severity) == ("firmware-comes", "warn")
    assert "linux-firmware-dragonwing" in finding.message


def test_what_an_installation_would_remove_refuses_it(tmp_path: Path) -> None:
    found = system_effects(SystemPlan((InstallPackages(("fastrpc",)),)), asked(tmp_path, "fastrpc"))
    (finding,) = found.findings
    assert finding.refuses
    assert "would remove board-dsp" in finding.message


def test_what_cannot_be_asked_is_not_made_up(tmp_path: Path) -> None:
    plan = SystemPlan((InstallPackages(("no-such-package",)),))
    found = system_effects(plan, asked(tmp_path, "no-such-package"))
    (step,) = found.steps
    assert step.describe() == "install no-such-package"
    assert [finding.refuses for finding in found.findings] == [True]


@pytest.mark.parametrize(
    ("model", "row"),
    [
        ("Radxa Dragon Q6A", "radxa"),
        ("Qualcomm Technologies, Inc. Lemans EVK", "ubuntu-ppa"),
        (None, "ubuntu-ppa"),
    ],
)
def test_the_row_of_the_board_comes_first(model: str | None, row: str, tmp_path: Path) -> None:
    names = ("qcom-fastrpc1", "fastrpc", "libcdsprpc1")
    state = state_of({"manager": "apt", "packages": {name: [None, "1"] for name in names}})
    path = tmp_path / "playbook.yaml"
    path.write_text(f"name: x\nbundle: {BUNDLE}\nfastrpc: auto\n")
    spec = load_playbook(path).system
    assert offered(spec, state, model) == packagings()[row]
    named = replace(spec, fastrpc="ubuntu-ppa")
    assert offered(named, state, model) == packagings()["ubuntu-ppa"], "what is named counts"


@pytest.mark.parametrize(
    ("version", "source", "row"),
    [
        ("1.0.6-1qli1~bpo13+2", "URIs: https://deb.example/qualcomm/qli", "qualcomm-linux"),
        ("1.0.7-2~bpo13+1", "URIs: https://deb.example/qualcomm/qli", "debian"),
        ("1.0.6-2", "URIs: https://ubuntu.example/ubuntu", "debian"),
        (None, "URIs: https://deb.example/qualcomm/qli", "qualcomm-linux"),
    ],
)
def test_the_version_tells_two_archives_of_the_same_packages_apart(
    version: str | None, source: str, row: str
) -> None:
    names = ("libfastrpc1", "fastrpc-support")
    seen = {name: [None, version] for name in names} if version else {}
    offer = state_of({"manager": "apt", "packages": seen, "sources": [source]})
    assert offered(SystemSpec(fastrpc="auto"), offer) == packagings()[row]
    if version:
        there = state_of({"manager": "apt", "packages": {name: [version] for name in names}})
        assert installed(there) == packagings()[row]
        own = packagings()["qualcomm-linux"]
        plain = state_of({"manager": "apt", "packages": seen})
        assert source_known(own, SystemSpec(fastrpc=own.id), plain) == (row == own.id)
