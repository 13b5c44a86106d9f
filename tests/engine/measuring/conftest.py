"""A lab board behind a real sshd whose /sys a test can write, and a program that heats it.

The program is a stand-in for llama-bench; what it does beside printing rates is a script that
each test writes onto the board.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from fleet.config.inventory import load_inventory
from fleet.config.playbook import load_playbook
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.options import DeployOptions
from fleet.engine.pool import DeviceResult
from fleet.engine.run.measuring import gate
from fleet.lab import Lab
from fleet.model.events import Event
from fleet.model.inventory import Host
from fleet.model.playbook import Playbook
from fleet.profiles.runs import RunStore
from fleet.runtimes.store import RuntimeStore
from tests.runners.kits import gguf

PROGRAM = """#!/bin/sh
echo "stand-in for llama-bench" >&2
rate=10.0
put() { echo "$2" > "$1.new" && mv "$1.new" "$1"; }
cd "$FLEET_SYSROOT/sys" || exit 1
[ ! -e ../behave ] || . ../behave
on='"devices": "HTP0", "backends": "HTP"'
echo "[{$on, \\"n_prompt\\": 8, \\"n_gen\\": 0, \\"avg_ts\\": 80.5},"
echo " {$on, \\"n_prompt\\": 0, \\"n_gen\\": 4, \\"avg_ts\\": $rate}]"
"""
TEXT = """
name: measured
bundle: {path: bundle, kind: llama.cpp}
run: {program: llama-bench, max_tokens: 4, options: {prompt_tokens: 8}, timeout: 30s}
"""
ZONE = "class/thermal/thermal_zone0/temp"  # nspss-0 of the lab's iq9075
BOOT = "proc/sys/kernel/random/boot_id"


@dataclass
class Rig:
    """One board on which the program is deployed."""

    host: Host
    playbook: Playbook
    root: Path
    runs: RunStore
    lab: Lab
    events: list[Event] = field(default_factory=list)
    hear: Callable[[Event], None] = lambda event: None

    def write(self, path: str, text: object) -> None:
        target = self.root / "sys" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f"{target.name}.new")
        new.write_text(f"{text}\n")
        new.replace(target)  # a look sees the old or the new

    def behave(self, script: str) -> None:
        """What the program does, in the board's /sys; it may set `rate`."""
        (self.root / "behave").write_text(script + "\n")

    def _take(self, event: Event) -> None:
        self.events.append(event)
        self.hear(event)

    def run(self, **changes: object) -> DeviceResult[Any]:
        assert self.playbook.run is not None
        spec = replace(self.playbook.run, **changes)  # type: ignore[arg-type]
        operation = Operation(
            replace(self.playbook, run=spec),
            [self.host],
            self._take,
            options=DeployOptions(run="always"),
            resources=Resources(RuntimeStore(self.root.parent / "runtimes"), self.runs),
        )
        return operation.run()[0]

    def said(self, kind: type[Event]) -> list[str]:
        return [getattr(one, "text", "") for one in self.events if isinstance(one, kind)]


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Path]]:
    """A lab of one board with the release deployed, and the folder of the playbook."""
    folder = tmp_path_factory.mktemp("measured")
    (folder / "bundle").mkdir()
    (folder / "bundle" / "model.gguf").write_bytes(gguf())
    (folder / "llama-bench").write_text(PROGRAM)
    (folder / "playbook.yaml").write_text(TEXT)
    with Lab.up(folder / "lab", count=1, kind="user", base_port=0) as lab:
        operation = Operation(
            load_playbook(folder / "playbook.yaml"),
            load_inventory(lab.inventory).hosts,
            lambda event: None,
            options=DeployOptions(run="never", offline=True),
            resources=Resources(RuntimeStore(folder / "runtimes"), RunStore(folder / "deploys")),
        )
        (done,) = operation.deploy()
        assert done.error is None, done.error
        yield lab, folder


@pytest.fixture
def rig(
    measured: tuple[Lab, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Rig]:
    monkeypatch.setattr(gate, "POLL_SECONDS", 0.05)
    lab, folder = measured
    root = lab.folder.board("lab001") / "sysroot"
    (host,) = load_inventory(lab.inventory).hosts
    before = {path: path.read_bytes() for path in (root / "sys").rglob("*") if path.is_file()}
    made = Rig(
        host, load_playbook(folder / "playbook.yaml"), root, RunStore(tmp_path / "runs"), lab
    )
    made.behave("")
    yield made
    (root / BOOT).unlink(missing_ok=True)
    for path in (root / "sys").rglob("*"):
        if path.is_file() and path not in before:
            path.unlink()
    for path, content in before.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
