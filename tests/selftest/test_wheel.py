"""A selftest of the shipped wheel as a default installation has it: without any extra."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from .conftest import BOARD, Hill

ROOT = Path(__file__).parents[2]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The folder of the programs of an environment with the wheel and its locked requirements."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    folder = tmp_path / "own"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    programs = folder / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "-q"]
    locked = ["--require-hashes", "-r", str(ROOT / ".ci/requirements/install.txt")]
    for more in (locked, ["--no-deps", "--no-index", str(wheel)]):
        subprocess.run([*pip, *more], check=True, capture_output=True)
    return programs


@pytest.mark.root
@pytest.mark.qairt
def test_a_healthy_board_is_not_accused_of_what_the_workstation_lacks(
    hill: Hill, own: Path, tmp_path: Path
) -> None:
    extra = subprocess.run([own / "python", "-c", "import onnx"], check=False, capture_output=True)
    assert extra.returncode == 1, "the environment has an extra"
    (tmp_path / "home").mkdir()
    (tmp_path / "home/runtimes").symlink_to(hill.store.root)
    env = {**os.environ, "PYTHONPATH": "", "FLEET_HOME": str(tmp_path / "home")}
    inventory = ["-i", str(hill.lab.inventory), "-l", BOARD]
    done = subprocess.run(
        [own / "fleet", "selftest", *inventory, "--runtime", hill.runtime.build_id, "--json"],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    rungs = {rung["rung"]: rung for rung in said["devices"][0]["rungs"]}
    assert [name for name, rung in rungs.items() if rung["status"] == "does not hold"] == []
    assert rungs["genie"]["status"] == "holds", "what needs no extra is decided"
    ort = rungs["ort"]
    assert (ort["status"], ort["listed"]) == ("not decided", True)
    assert ort["reason"].startswith("on this workstation, the Python package onnx is not installed")
    assert str(own / "python") in ort["cure"]
    assert "npu-fleet[onnx]" in ort["cure"]
    with tarfile.open(tmp_path / said["archive"]) as packed:
        members = [packed.extractfile(member) for member in packed]
        text = "".join(member.read().decode() for member in members if member)
    assert "onnx is not installed" in text
    assert str(own) not in text
