"""The workstation dies: SIGKILL at random moments of a real deploy, then deploy again."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import PLAYBOOK, Bench

pytestmark = pytest.mark.qairt


def start(bench: Bench, folder: Path, *more: str) -> subprocess.Popen[bytes]:
    host = bench.host
    inventory = folder / "inventory.yaml"
    inventory.write_text(
        "all:\n  hosts:\n    board:\n"
        f"      host: 127.0.0.1\n      port: {host.port}\n      user: {host.user}\n"
        f"      identity_file: {host.identity_files[0]}\n      known_hosts: {host.known_hosts}\n"
        f"      base_dir: {bench.base}\n      soc: QCS9075\n"
    )
    home = folder / "home"
    home.mkdir(exist_ok=True)
    if not (home / "runtimes").exists():
        (home / "runtimes").symlink_to(bench.store.root)
    argv = [sys.executable, "-m", "fleet", "deploy", "-i", str(inventory), str(PLAYBOOK)]
    return subprocess.Popen(
        [*argv, "--no-run", "--offline", *more],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "FLEET_HOME": str(home)},
    )


def check(bench: Bench) -> None:
    for blob in (bench.base / "store").glob("*"):
        if not blob.name.endswith(".part"):
            with blob.open("rb") as stream:
                assert hashlib.file_digest(stream, "sha256").hexdigest() == blob.name
    live = bench.base / "current" / "tiny-genie"
    if live.is_symlink():
        assert (bench.base / "meta" / "tiny-genie" / live.readlink().name / ".installed").exists()
        assert all(path.exists() for path in live.rglob("*"))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_random_moments(bench: Bench, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(4):
        process = start(bench, tmp_path)
        time.sleep(dice.uniform(0.4, 3.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        check(bench)
    (done,) = bench.operation(run="never").deploy()
    assert done.error is None, f"seed {seed}: {done.error}"
    check(bench)
    (again,) = bench.operation(run="never").deploy()
    assert again.outcome == "unchanged"


def test_ctrl_c_ends_soon_and_the_next_deploy_goes_on(bench: Bench, tmp_path: Path) -> None:
    process = start(bench, tmp_path, "--tune", "bandwidth=30MB/s")  # else it may end before
    end = time.monotonic() + 30
    while time.monotonic() < end and not list(bench.base.glob("store/*.part")):
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    check(bench)
    (done,) = bench.operation(run="never").deploy()
    assert done.outcome == "changed", done.error
    assert done.plan is not None
    assert done.bytes_sent == done.plan.bytes
