"""A real scheduler and real workers, each a process with a FLEET_HOME of its own; user boards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fleet.config.inventory import load_inventory
from fleet.config.playbook import load_playbook
from fleet.engine.cluster.connecting import ClusterExecutor, executor_for
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.options import DeployOptions
from fleet.lab import Lab
from fleet.model.events import Event
from fleet.model.inventory import Host
from fleet.model.playbook import Playbook
from fleet.profiles.runs import RunStore
from fleet.runtimes.store import RuntimeStore
from tests.runners.kits import gguf

READY_SECONDS = 60.0
CANARY = "canary-7d1f4b"  # in the environment of workers only

PROGRAM = """#!/bin/sh
case " $* " in *' -n 4 '*) echo run >>'{folder}/runs.log' ;; esac
n=0
while [ -f '{folder}/slow' ] && [ $n -lt 300 ]; do n=$((n + 1)); sleep 0.2; done
echo "stand-in for llama-bench" >&2
echo '[{"devices": "HTP0", "backends": "HTP", "n_prompt": 8, "n_gen": 0, "avg_ts": 80.5},'
echo ' {"devices": "HTP0", "backends": "HTP", "n_prompt": 0, "n_gen": 4, "avg_ts": 9.5}]'
"""
PLAYBOOK = """
name: llama
bundle: {path: bundle, kind: llama.cpp}
run: {program: llama-bench, max_tokens: 4, options: {prompt_tokens: 8}}
"""
MODEL_BYTES = 9 << 20  # three pieces, the last one not full


def until(there: Callable[[], object], what: str, seconds: float = READY_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end, f"{what} did not come within {seconds:g} s"
        time.sleep(0.02)


@dataclass
class Cluster:
    """Processes of dask, and what they wrote."""

    folder: Path
    port: int
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"dask://127.0.0.1:{self.port}"

    def home(self, name: str) -> Path:
        return self.folder / name

    def log(self) -> str:
        return "".join(p.read_text("utf-8", "replace") for p in sorted(self.folder.glob("*.log")))

    def start(self, name: str, *options: str, **env: str) -> subprocess.Popen[bytes]:
        """A worker. Its python is this one, its home its own."""
        self.home(name).mkdir(exist_ok=True)
        argv = ["worker", f"127.0.0.1:{self.port}", "--no-nanny", "--no-dashboard", "--name", name]
        temp = ["--local-directory", str(self.folder / f"{name}.tmp"), "--host", "127.0.0.1"]
        own = {"FLEET_HOME": str(self.home(name)), "FLEET_CANARY": CANARY, **env}
        return started(self, name, [*argv, *temp, "--nthreads", "2", *options], own)


def started(
    cluster: Cluster, name: str, argv: list[str], env: dict[str, str]
) -> subprocess.Popen[bytes]:
    with (cluster.folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *argv],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "1s", **env},
            cwd=cluster.folder,
        )
    cluster.processes.append(process)
    return process


def ended(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    made = Cluster(folder, 0)
    where = folder / "scheduler.json"
    argv = ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show"]
    try:
        started(made, "scheduler", [*argv, "--scheduler-file", str(where)], {})
        until(lambda: where.exists() and "tcp://127" in where.read_text(), "the scheduler")
        made.port = int(where.read_text().split('"address": "tcp://127.0.0.1:')[1].split('"')[0])
        made.start("berlin-1")
        made.start("munich-1", "--resources", "site-munich=1")
        yield made
    finally:
        for process in reversed(made.processes):
            ended(process)


@pytest.fixture(autouse=True)
def own_workers_end(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test started and, failing, did not end is not the next one's business."""
    if "cluster" not in request.fixturenames:
        yield
        return
    made: Cluster = request.getfixturevalue("cluster")
    before = len(made.processes)
    yield
    for process in made.processes[before:]:
        ended(process)


@contextmanager
def connected(cluster: Cluster, workers: int = 2) -> Iterator[ClusterExecutor]:
    executor = executor_for(cluster.address)
    assert isinstance(executor, ClusterExecutor)
    with executor:
        until(lambda: len(executor.places()) == workers, f"{workers} workers")
        yield executor


@pytest.fixture
def executor(cluster: Cluster) -> Iterator[ClusterExecutor]:
    with connected(cluster) as made:
        yield made


@pytest.fixture(scope="module")
def user_boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab.up(tmp_path_factory.mktemp("boards"), count=3, kind="user", base_port=0) as lab:
        yield lab


@dataclass
class Fleet:
    """Three boards and a playbook; each test has boards of its own by another base folder."""

    hosts: tuple[Host, ...]
    playbook: Playbook
    runs: RunStore
    folder: Path
    events: list[Event] = field(default_factory=list)

    def operation(self, executor: ClusterExecutor | None, **changes: object) -> Operation:
        return Operation(
            self.playbook,
            self.hosts,
            self.events.append,
            options=DeployOptions(offline=True, **changes),  # type: ignore[arg-type]
            resources=Resources(
                RuntimeStore(self.folder / "runtimes"), self.runs, executor=executor
            ),
        )

    def hide(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Workers cannot open the files of the playbook: its paths mean others to them."""
        monkeypatch.chdir(self.folder)
        here, run = Path("/proc/self/cwd"), self.playbook.run
        assert run is not None
        self.playbook = replace(
            self.playbook, bundle=here / "bundle", run=replace(run, program=here / "llama-bench")
        )

    def runs_begun(self) -> int:
        """How often runs were begun on boards; the health probe does not count."""
        log = self.folder / "runs.log"
        return log.read_text().count("run") if log.exists() else 0


@pytest.fixture
def fleet(user_boards: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "workstation"))
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "model.gguf").write_bytes(gguf(os.urandom(MODEL_BYTES)))
    (tmp_path / "llama-bench").write_text(PROGRAM.replace("{folder}", str(tmp_path)))
    (tmp_path / "playbook.yaml").write_text(PLAYBOOK)
    base = f"~/{tmp_path.name}"
    hosts = load_inventory(user_boards.inventory).hosts
    return Fleet(
        tuple(replace(host, base_dir=base, labels={}) for host in hosts),
        load_playbook(tmp_path / "playbook.yaml"),
        RunStore(tmp_path / "workstation" / "runs"),
        tmp_path,
    )
