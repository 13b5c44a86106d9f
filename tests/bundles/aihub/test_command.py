"""`fleet bundle pull` as a process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from fleet.model.deadline import Deadline
from tests import warm
from tests.standins.aihub import SECRETS, AiHub

from .conftest import CONTEXT


def call(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return warm.fleet("bundle", "pull", *args, cwd=cwd)


def appeared(folder: Path, name: str) -> Path:
    deadline = Deadline(60)
    while not (found := list(folder.rglob(name))):
        deadline.check(f"the wait for {name}")
        time.sleep(0.02)
    return found[0]


def test_a_person(hub: AiHub, tmp_path: Path) -> None:
    done = call("aihub:jbin1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for word in ("QCS9075, v73, soc_model 77", "2.51.0.260929181845", "mbin1 tiny", "tiny.bin"):
        assert word in done.stdout
    assert (tmp_path / "tiny-jbin1" / "aihub.json").is_file()
    assert "next: fleet bundle wrap-ep tiny-jbin1/*.bin" in done.stderr
    assert not [one for one in SECRETS if one in done.stdout + done.stderr]


def test_a_program_and_a_broken_download(hub: AiHub, tmp_path: Path) -> None:
    hub.assets["mbin1"].cuts = [100]
    done = call("aihub:jbin1", "--output", "net", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["folder"] == str(tmp_path / "net")
    assert value["next"][0] == "fleet bundle inspect --kind qnn net"
    assert done.stderr == ""
    written = b"".join(path.read_bytes() for path in (tmp_path / "net").iterdir()).decode("latin-1")
    assert not [one for one in SECRETS if one in done.stdout + written]


def test_killed_in_the_middle_and_pulled_again(hub: AiHub, tmp_path: Path) -> None:
    hub.assets["mbin1"].cuts = [-1] * 9  # the client tries again after 4 s
    words = [sys.executable, "-m", "fleet", "bundle", "pull", "aihub:jbin1", "--output", "net"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        try:
            assert hub.stalled.wait(60)
            half = appeared(tmp_path / ".net.part", "model.bin")  # on the disk of the bundle
        finally:
            process.kill()
    assert not (tmp_path / "net").exists()
    assert half.stat().st_size < len(CONTEXT)
    hub.assets["mbin1"].cuts = []
    assert call("aihub:jbin1", "--output", "net", cwd=tmp_path).returncode == 0
    assert (tmp_path / "net" / "tiny.bin").read_bytes() == CONTEXT
    assert not (tmp_path / ".net.part").exists()
