"""The main job on the boards of an ordinary user: what `make demo` does without root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.lab import Lab

ROOT = Path(__file__).parents[2]


@pytest.mark.qairt
def test_deploy_to_user_boards(tmp_path: Path, qairt_store: object) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "runtimes").symlink_to(qairt_store.root)  # type: ignore[attr-defined]
    folder = tmp_path / "lab folder"
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(
        f"all:\n  vars:\n    ssh_config: {folder}/ssh_config\n"
        f"    known_hosts: {folder}/known_hosts\n  hosts:\n    lab[001:002]:\n"
    )
    with Lab.up(folder, count=2, kind="user", base_port=0):
        done = subprocess.run(
            [sys.executable, "-m", "fleet", "deploy", "-i", str(inventory),
             str(ROOT / "playbooks" / "tiny-genie.yaml"), "--json", "--offline"],
            capture_output=True, text=True, check=False, timeout=240,
            env={**os.environ, "FLEET_HOME": str(home)},
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    ends = [event for event in events if event["event"] == "DeviceDone"]
    assert {end["outcome"] for end in ends} == {"changed"}
    assert all(end["emulated"] for end in ends)
    records = [event["record"] for event in events if event["event"] == "RunDone"]
    assert len(records) == 12
    assert all(record["counts"] or record["warmup"] for record in records)
