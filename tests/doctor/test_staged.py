"""After a first deploy that failed at the probe: what was staged is asked, and tells the cause."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.config.playbook import load_playbook
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.options import DeployOptions
from fleet.model.diagnosis import HEALTHY, PROBLEM, UNCHECKED
from fleet.model.errors import HealthError
from fleet.model.plain import to_plain
from tests import warm
from tests.support_runtime import cached_store

from .conftest import BUNDLE, PLAYBOOK, ROOT, Ward, ids

pytestmark = [pytest.mark.root, pytest.mark.qairt]


def deploy(ward: Ward, bundle: Path) -> None:
    """A first deploy of that bundle to lab002, whose probe must refuse it."""
    playbook = replace(load_playbook(PLAYBOOK), bundle=bundle)
    operation = Operation(
        playbook,
        [ward.host("lab002")],
        lambda _: None,
        options=DeployOptions(run="never"),
        resources=Resources(cached_store(), ward.runs),
    )
    (result,) = operation.deploy()
    assert isinstance(result.error, HealthError), result.error


def broken_bundle(folder: Path) -> Path:
    """The tiny bundle with a page of zeros in its context binary: only a load shows it."""
    shutil.copytree(BUNDLE, folder)
    (binary,) = folder.glob("*.bin")
    content = bytearray(binary.read_bytes())
    content[4096:8192] = bytes(4096)
    binary.write_bytes(content)
    (folder / "SHA256SUMS").unlink()
    return folder


def test_what_was_staged_and_never_live_is_asked(ward: Ward, tmp_path: Path) -> None:
    before = ward.look("lab002")
    assert before.verdict == UNCHECKED
    deploy(ward, broken_bundle(tmp_path / "bundle"))
    found = ward.look("lab002")
    check = next(one for one in found.checks if one.id == "session")
    assert check.status == "bad", check.text
    assert "never live" in check.text
    assert found.verdict == PROBLEM
    assert "contextCreateFromBinary failed with 5005" in check.text
    assert ids(found)[0] == "context-binary-corrupt", ids(found)
    ward.deploy("lab002")
    healed = ward.look("lab002")
    assert healed.verdict == HEALTHY, [to_plain(one) for one in healed.checks]
    assert not any("never live" in one.text for one in healed.checks)


def test_nothing_deployed_is_not_checked_and_names_the_next_command(
    ward: Ward,
) -> None:
    """In a project as `fleet init` lays it out, the command that is named works when pasted."""
    inventory = ward.lab.inventory
    project = inventory.parent.parent
    (project / "playbooks").mkdir()
    text = PLAYBOOK.read_text("utf-8").replace("../assets/tiny-genie", str(BUNDLE))
    (project / "playbooks" / inventory.name).write_text(text)
    ward.lab.reset("lab002")
    given = f"{inventory.parent.name}/{inventory.name}"
    done = fleet("doctor", "-i", given, "-l", "lab002", cwd=project)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "not checked" in done.stdout
    assert "healthy" not in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if "next: " in line]
    command = shlex.split(line.partition("next: ")[2])
    assert command[:1] == ["fleet"]
    assert command[command.index("-i") + 1] == given
    pasted = fleet(*command[1:], "--dry-run", cwd=project)
    assert pasted.returncode == 0, pasted.stderr
    assert "lab002" in pasted.stdout


def fleet(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    return warm.fleet(*argv, cwd=cwd, env=env, timeout=300)
