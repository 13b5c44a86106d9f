"""`fleet selftest` and `fleet lab profile` as an owner of a board types them."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from fleet.cli.selftest import _show
from fleet.config.inventory import load_inventory
from fleet.engine.session import Session
from fleet.engine.states import facts_of
from fleet.lab import Lab
from fleet.model.facts import Facts
from fleet.selftest.ladder import UNDECIDED, Climbed, RungResult, rungs
from tests import warm
from tests.transport.sshd import free_port

from .conftest import BOARD, Hill

ROOT = Path(__file__).parents[2]


def fleet(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "NO_COLOR": "1", "FLEET_HOME": str(folder / "home")}
    env["PYTHONPATH"] = str(ROOT)
    return warm.fleet(*argv, cwd=folder, env=env)


def facts(lab: Lab) -> Facts:
    session = Session(load_inventory(lab.inventory).hosts[0], lambda _: None)
    session.open()
    try:
        return facts_of(session)
    finally:
        session.close()


def test_a_device_that_is_not_reached_ends_with_3_and_no_archive(tmp_path: Path) -> None:
    inventory = tmp_path / "i.yaml"
    inventory.write_text(
        f"all:\n  hosts:\n    evk: {{host: 127.0.0.1, port: {free_port()}, user: x}}\n"
    )
    done = fleet(tmp_path, "selftest", "-i", "i.yaml", "--json")
    assert done.returncode == 3, done.stderr
    said = json.loads(done.stdout)
    assert (said["devices"], said["archive"]) == ([], None)
    assert said["errors"][0]["device"] == "evk"
    assert list(tmp_path.glob("*.tar.gz")) == []
    done = fleet(tmp_path, "selftest", "-i", "i.yaml", "--runtime", "9.99")
    assert done.returncode == 2
    assert "has no runtime '9.99'" in done.stderr


def test_what_the_workstation_lacks_is_shown_with_its_cure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (rung,) = [rung for rung in rungs() if rung.id == "ort"]
    why = "on this workstation, the Python package onnx is not installed"
    step = RungResult(rung, UNDECIDED, "", "", reason=why, key="workstation", cure="pip install x")
    _show(Climbed("evk-07", Facts(), "", [step]))
    said = capsys.readouterr()
    assert why in " ".join(said.out.split())
    assert "next: pip install x" in said.err


@pytest.mark.root
@pytest.mark.qairt
def test_from_a_broken_board_to_a_lab_board_like_it(hill: Hill, tmp_path: Path) -> None:
    hill.lab.fault(BOARD, "node-root-only")
    try:
        inventory = str(hill.lab.inventory)
        done = fleet(tmp_path, "selftest", "-i", inventory, "-l", BOARD)
        broken = facts(hill.lab)
    finally:
        hill.lab.heal(BOARD, "node-root-only")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert lines[0] == f"{BOARD}  emulated: true"
    assert any(line.split()[:2] == ["FELL", "nodes"] for line in lines)
    assert "  first assumption that does not hold: A12 " in done.stdout
    (archive,) = tmp_path.glob("selftest-qcs9075-*.tar.gz")
    assert archive.name in done.stderr
    assert f"next: fleet doctor --limit {BOARD} -i {inventory}" in done.stderr
    with tarfile.open(archive) as packed:
        members = [packed.extractfile(member) for member in packed]
        text = "".join(member.read().decode() for member in members if member)
        assert {Path(name).parts[2] for name in packed.getnames()} >= {"raw", "rungs"}
    for secret in (BOARD, broken.machine_id or "-", "/home/ubuntu", "127.0.0.1"):
        assert secret not in text
    made = fleet(tmp_path, "lab", "profile", archive.name, "--output", "board.yaml")
    assert made.returncode == 0, made.stderr
    assert "A12 fleet.bundles.rules_device:fastrpc_node" in made.stdout
    again = fleet(tmp_path, "lab", "profile", archive.name, "--output", "board.yaml")
    assert again.returncode == 2
    profile = str(tmp_path / "board.yaml")
    with Lab.up(
        tmp_path / "lab", count=1, kind="namespace", base_port=0, profile=profile
    ) as recorded:
        found = facts(recorded)
    assert found.soc == broken.soc
    assert found.remoteproc == broken.remoteproc
    assert [node.path for node in found.nodes if node.exists] == [
        node.path for node in broken.nodes if node.exists
    ]
    node, was = (next(n for n in f.nodes if "rpc" in n.path) for f in (found, broken))
    assert (node.mode, node.group, node.open_error) == (was.mode, was.group, "EACCES")
