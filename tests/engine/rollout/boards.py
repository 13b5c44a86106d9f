"""Small real boards for rollouts: an sshd each, a bundle of some kilobytes, a program that is a
shell script. The real engine brings it there; nothing of QAIRT is needed.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.config.inventory import load_inventory
from fleet.config.playbook import load_playbook
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.options import DeployOptions
from fleet.engine.rollout.claim import NAME
from fleet.engine.rollout.inputs import inputs_of
from fleet.engine.rollout.journal import Journal
from fleet.engine.rollout.state import RunState
from fleet.model.events import Event
from fleet.profiles.runs import RunStore
from fleet.runtimes.store import RuntimeStore
from tests.runners.kits import gguf
from tests.transport.sshd import Sshd

# The probe and the run: fails where the board is made sick, waits where it is slow.
PROGRAM = """#!/bin/sh
base=${0%/releases/*}
if [ -e "$base/../sick" ]; then echo "error: this board is sick" >&2; exit 9; fi
while [ -e "$base/../slow" ]; do sleep 0.1; done
echo '[{"devices": "HTP0", "backends": "HTP", "n_prompt": 8, "n_gen": 0, "avg_ts": 80.5},'
echo ' {"devices": "HTP0", "backends": "HTP", "n_prompt": 0, "n_gen": 4, "avg_ts": 9.5}]'
"""
PLAYBOOK = """
name: app
bundle: {path: bundle, kind: llama.cpp}
run: {program: llama-bench, max_tokens: 4}
health: {timeout: 2m}
strategy: {parallel: %d, keep: 2}
"""


@dataclass
class Yard:
    """Boards b1, b2, ... with an inventory and a playbook, as files."""

    folder: Path
    servers: list[Sshd]
    events: list[Event] = field(default_factory=list)
    parallel: int = 1

    def __post_init__(self) -> None:
        self.playbook = self.folder / "playbook.yaml"
        self.inventory = self.folder / "inventory.yaml"
        (self.folder / "bundle").mkdir()
        self.write_model("one")
        (self.folder / "llama-bench").write_text(PROGRAM)
        self.playbook.write_text(PLAYBOOK % self.parallel)
        lines = ["all:", "  hosts:"]
        for name, server in zip(self.names, self.servers, strict=True):
            host = server.host()
            lines += [
                f"    {name}:", "      host: 127.0.0.1", f"      port: {host.port}",
                f"      user: {host.user}", f"      identity_file: {host.identity_files[0]}",
                f"      known_hosts: {host.known_hosts}", "      connect_timeout: 5s",
                f"      base_dir: {self.base(name)}", "      soc: QCS9075",
            ]  # fmt: skip
        self.inventory.write_text("\n".join(lines) + "\n")

    @property
    def names(self) -> list[str]:
        return [f"b{number}" for number in range(1, len(self.servers) + 1)]

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def runs(self) -> RunStore:
        return RunStore(self.home / "runs")

    def base(self, name: str) -> Path:
        return self.folder / name / "fleet"

    def server(self, name: str) -> Sshd:
        return self.servers[self.names.index(name)]

    def write_model(self, text: str, size: int = 0) -> None:
        """What the bundle holds: another text makes another release."""
        (self.folder / "bundle" / "model.gguf").write_bytes(gguf((text + "." * size).encode()))

    def make_sick(self, name: str, *, sick: bool = True) -> None:
        mark = self.folder / name / "sick"
        mark.parent.mkdir(exist_ok=True)
        mark.touch() if sick else mark.unlink()

    def current(self, name: str) -> str | None:
        link = self.base(name) / "current" / "app"
        return link.readlink().name if link.is_symlink() else None

    @property
    def live(self) -> list[str | None]:
        return [self.current(name) for name in self.names]

    def contacts(self, name: str) -> int:
        """How many logins the board has seen, by its own log."""
        log = self.server(name).folder / "sshd.log"
        return log.read_text("utf-8", "replace").count("Accepted publickey")

    def operation(self, rollout: str = "", **changes: Any) -> Operation:
        """In this process; `rollout` is the YAML of that section."""
        text = PLAYBOOK % self.parallel + (f"rollout: {rollout}\n" if rollout else "")
        self.playbook.write_text(text)
        self.events.clear()
        return Operation(
            load_playbook(self.playbook),
            load_inventory(self.inventory).hosts,
            self.events.append,
            options=DeployOptions(**{"run": "never", "offline": True, **changes}),
            inputs=inputs_of(self.playbook, self.inventory),
            resources=Resources(RuntimeStore(self.home / "runtimes"), self.runs),
        )

    def first_release(self, *names: str) -> list[str | None]:
        """Release `one` on these, so that there is something to roll back to."""
        operation = self.operation()
        operation.hosts = tuple(host for host in operation.hosts if host.name in names)
        for one in operation.deploy():
            assert one.error is None, one.error
        return [self.current(name) for name in names]

    def steps(self) -> list[str]:
        """The steps of the newest run, in the order of its journal."""
        return [line["step"] for line in self.lines() if line["line"] == "step"]

    def argv(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "fleet", *args]

    def start(self, *args: str) -> subprocess.Popen[str]:
        """A fleet of its own process, which can be killed."""
        return subprocess.Popen(
            self.argv(*args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "FLEET_HOME": str(self.home), "NO_COLOR": "1"},
        )  # fmt: skip

    def deploy_args(self, *args: str) -> tuple[str, ...]:
        return ("deploy", "-i", str(self.inventory), str(self.playbook), "--offline", *args)

    def fleet(self, *args: str) -> tuple[int, str]:
        """Exit code, and all that was said."""
        process = self.start(*args)
        out, err = process.communicate(timeout=120)
        return process.returncode, out + err

    def journal(self) -> Path:
        """That of the newest run; by its time, the names of one second are in no order."""
        return max(self.runs.root.glob(f"*/{NAME}"), key=lambda one: one.stat().st_mtime_ns)

    def lines(self) -> list[dict[str, Any]]:
        found = []
        for line in self.journal().read_text("utf-8").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found

    def state(self) -> RunState:
        return Journal.read(self.journal())


@contextlib.contextmanager
def yard(folder: Path, count: int, *, parallel: int = 1) -> Iterator[Yard]:
    servers = [Sshd(folder / f"sshd{number}") for number in range(count) if _made(folder, number)]
    try:
        for server in servers:
            server.start()
        yield Yard(folder, servers, parallel=parallel)
    finally:
        for server in servers:
            server.stop()


def _made(folder: Path, number: int) -> bool:
    (folder / f"sshd{number}").mkdir(parents=True)
    return True
