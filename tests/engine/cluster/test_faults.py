"""What goes wrong with clusters: lost workers, other versions, Ctrl-C, secrets, no scheduler."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.cli.common import working_on
from fleet.config.inventory import load_inventory
from fleet.engine.cluster import worker
from fleet.engine.cluster.connecting import ClusterExecutor, executor_for
from fleet.engine.cluster.wire import TOPIC
from fleet.engine.pool import PoolOptions, on_every_device
from fleet.engine.states import gather_facts
from fleet.lab import Lab
from fleet.model.errors import InputError, UnreachableError
from fleet.model.events import Event, RunDone, StepStarted, Warned
from fleet.model.extras import install_extra, source
from fleet.model.secret import Secret, SecretRef

from .conftest import CANARY, Cluster, Fleet, connected, ended, until


def step(event: Event, name: str) -> bool:
    return isinstance(event, StepStarted) and event.step == name


def test_of_a_lost_worker_a_deploy_is_begun_once_more_and_a_run_is_not(
    fleet: Fleet, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.hide(monkeypatch)
    site = [cluster.start("paris-1", "--resources", "site-lyon=1")]
    with connected(cluster, 3) as executor:
        fleet.hosts = (replace(fleet.hosts[0], labels={"site": "lyon"}),)
        operation = fleet.operation(executor, run="never")

        def kill_at_fetch(event: Event) -> None:
            fleet.events.append(event)
            if step(event, "fetch") and len(site) == 1:
                ended(site[0])
                site.append(cluster.start("lyon-2"))

        operation._listener = kill_at_fetch
        (done,) = operation.deploy()
        assert done.error is None, done.error
        assert done.outcome == "changed"
        assert any(
            isinstance(e, Warned) and "starts again with another worker" in e.text
            for e in fleet.events
        )

        # distributed itself would give the run to the other one, at once and in silence.
        (fleet.folder / "slow").touch()
        site.append(cluster.start("lyon-3"))
        until(lambda: len(executor.places()) == 4, "the third worker")

        def kill_at_run(event: Event) -> None:
            if step(event, "run"):
                until(fleet.runs_begun, "the run")
                at = [one.name for one in executor.places() if working(executor, one.address)]
                ended(site[1 if at == ["lyon-2"] else 2])

        operation._listener = kill_at_run
        (lost,) = operation.run()
        assert lost.outcome == "unreachable"
        assert isinstance(lost.error, UnreachableError)
        assert "the dask worker that worked on this device died, as the worker lyon-" in lost.text
        assert fleet.runs_begun() == 1
        (fleet.folder / "slow").unlink()
        for process in site:
            ended(process)
        until(lambda: len(executor.places()) == 2, "the end of all three")


@pytest.mark.parametrize("count", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_a_board_that_measures_while_its_worker_dies_is_measured_again(
    fleet: Fleet, cluster: Cluster, tmp_path: Path, count: int
) -> None:
    """The release is there by then; without its run the board would end as `unchanged`."""
    site = ("--resources", "site-lyon=1")
    (fleet.folder / "slow").touch()
    with Lab.up(tmp_path / "lab", count=2 * count, kind="user", base_port=0) as lab:
        hosts = load_inventory(lab.inventory).hosts
        fleet.hosts = tuple(replace(host, labels={"site": "lyon"}) for host in hosts)
        first = [cluster.start(f"lyon-{number}", *site) for number in range(count)]
        with connected(cluster, 2 + count) as executor:
            operation = fleet.operation(executor)
            measuring: set[str] = set()

            def kill_them_all(event: Event) -> None:
                fleet.events.append(event)
                if step(event, "run"):
                    measuring.add(event.host)
                if len(measuring) == 2 * count and len(cluster.processes) == before:
                    until(lambda: fleet.runs_begun() >= 2 * count, "the runs")
                    cluster.start("lyon-new", *site)
                    for process in first:
                        ended(process)
                    (fleet.folder / "slow").unlink()

            before = len(cluster.processes)
            operation._listener = kill_them_all
            results = operation.deploy()
    assert measuring == {host.name for host in hosts}
    for done in results:
        assert (done.outcome, done.error) == ("changed", None), done.host.name
        assert any(not record.warmup for record in done.records), done.host.name


def working(executor: ClusterExecutor, address: str) -> bool:
    return bool(executor.client.processing([address])[address])


def test_boards_of_a_site_without_worker_name_the_command(
    fleet: Fleet, executor: ClusterExecutor
) -> None:
    fleet.hosts = (replace(fleet.hosts[0], labels={"site": "tokyo"}),)
    with pytest.raises(InputError, match=r"serves site 'tokyo'.*munich") as caught:
        fleet.operation(executor).plan()
    assert "dask worker" in caught.value.hint


def test_another_version_on_a_worker_is_one_clear_error(
    fleet: Fleet, cluster: Cluster, tmp_path: Path
) -> None:
    preload = tmp_path / "older.py"
    preload.write_text(
        "from fleet.engine.cluster import worker\nworker.VERSION = '0.0.9'\n"
        "def dask_setup(worker): pass\n"
    )
    old = cluster.start("old-1", "--preload", str(preload))
    with connected(cluster, 3) as executor:
        with pytest.raises(InputError, match=r"old-1 has fleet 0\.0\.9 on Python 3") as caught:
            fleet.operation(executor).plan()
        assert shlex.join(source("dask")) in caught.value.hint
        ended(old)
        until(lambda: len(executor.places()) == 2, "the end of the old worker")


def test_ctrl_c_ends_the_tasks_and_their_sessions(fleet: Fleet, executor: ClusterExecutor) -> None:
    fleet.hosts = fleet.hosts[:1]
    operation = fleet.operation(executor, run="never")
    operation.deploy()
    (fleet.folder / "slow").touch()

    def interrupt(event: Event) -> None:
        if step(event, "run"):
            os.kill(os.getpid(), signal.SIGINT)

    operation._listener = interrupt
    with pytest.raises(KeyboardInterrupt):
        operation.run()
    addresses = [one.address for one in executor.places()]
    until(lambda: not any(working(executor, one) for one in addresses), "the end of the task")
    job = list(executor._jobs.values())[-1]
    until(lambda: not any(executor.call(addresses, sessions, job.order.id).values()), "the end")


def sessions(order: str) -> int:
    return len(worker._runs[order].sessions) if order in worker._runs else 0


def test_a_secret_is_seen_nowhere(
    fleet: Fleet, cluster: Cluster, executor: ClusterExecutor
) -> None:
    assert "FLEET_CANARY" not in os.environ, "only workers have it: they resolve it"
    ref = SecretRef("env:FLEET_CANARY", fleet.folder)
    absent = SecretRef("env:FLEET_ABSENT", fleet.folder)
    one, two, three = fleet.hosts
    fleet.hosts = (replace(one, password=ref, become_password=ref), replace(two, password=absent))
    fine, refused = fleet.operation(executor).plan()
    assert fine.outcome == "planned", fine.error
    assert "FLEET_ABSENT for the password is not set" in refused.text
    told = executor.client.run_on_scheduler(everything)
    assert f"{fleet.hosts[0].name}" in told, "what the dashboard shows names the board"
    shown = [cluster.log(), told, repr(executor.client.get_events(TOPIC)), repr(fleet.events)]
    shown += [repr(fine), *executor.client.run(holds).values()]
    assert [text for text in shown if CANARY in text] == []

    clear = SecretRef("literal", fleet.folder, Secret(CANARY))
    fleet.hosts = (replace(three, password=clear),)
    (never,) = fleet.operation(executor).deploy()
    assert isinstance(never.error, InputError)
    assert "clear text" in never.text


def test_a_secret_that_a_board_says_back_is_in_no_record(
    fleet: Fleet, executor: ClusterExecutor
) -> None:
    """The worker used it, so the worker knows what to mask; this process has never seen it."""
    program = fleet.folder / "llama-bench"
    program.write_text(program.read_text().replace('"HTP0"', f'"{CANARY}"'))
    ref = SecretRef("env:FLEET_CANARY", fleet.folder)
    fleet.hosts = (replace(fleet.hosts[0], password=ref),)
    operation = fleet.operation(executor)
    (done,) = operation.deploy()
    (record,) = done.records
    assert any("***" in one for one in record.problems), record.problems
    (told,) = [event.record for event in fleet.events if isinstance(event, RunDone)]
    assert told["artifacts"] == record.artifacts
    files = [one for one in fleet.runs.root.rglob("*") if one.is_file()]
    assert {"record.json", "stdout.log"} <= {one.name for one in files}
    shown = [repr(done.records), repr(fleet.events)]
    shown += [one.read_text("utf-8") for one in files if one.name != "bench.json"]
    assert [text for text in shown if CANARY in text] == []


def test_nor_is_it_in_facts(fleet: Fleet, executor: ClusterExecutor, user_boards: Lab) -> None:
    board = user_boards.folder.board(fleet.hosts[0].name)
    zone = board / "sysroot/sys/class/thermal/thermal_zone0/type"
    before = zone.read_text()
    ref = SecretRef("env:FLEET_CANARY", fleet.folder)
    host = replace(fleet.hosts[0], password=ref)
    try:
        zone.write_text(f"{CANARY}\n")
        (done,) = on_every_device([host], gather_facts, print, PoolOptions(executor=executor))
    finally:
        zone.write_text(before)
    assert "***" in repr(done.value)
    assert CANARY not in repr(done)


def everything(dask_scheduler: object) -> str:
    scheduler = dask_scheduler
    return repr(
        (
            list(scheduler.tasks),  # type: ignore[attr-defined]
            [(one.key, repr(one.run_spec)) for one in scheduler.tasks.values()],  # type: ignore[attr-defined]
            list(scheduler.transition_log),  # type: ignore[attr-defined]
            scheduler.get_events(),  # type: ignore[attr-defined]
        )
    )


def holds(dask_worker: object) -> str:
    state = dask_worker.state  # type: ignore[attr-defined]
    return repr((list(state.log), list(state.tasks.values()), dask_worker.data))  # type: ignore[attr-defined]


def test_no_scheduler_and_no_distributed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.engine.cluster.connecting.CONNECT_SECONDS", 0.3)
    with pytest.raises(UnreachableError, match="no dask scheduler answers") as caught:
        executor_for("dask://127.0.0.1:9")
    assert (
        caught.value.hint
        == "start the scheduler on the machine of this address: dask scheduler --port 9"
    )
    for wrong in ("127.0.0.1:8786", "dask://127.0.0.1", "ray://127.0.0.1:1"):
        with pytest.raises(InputError, match="is not the address of an executor"):
            executor_for(wrong)
    monkeypatch.delitem(sys.modules, "fleet.engine.cluster.connecting")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match="not installed") as missing, working_on("dask://h:9", 1):
        pass
    assert missing.value.hint == install_extra("dask")


def test_accept_new_is_not_for_workers(fleet: Fleet, executor: ClusterExecutor) -> None:
    with pytest.raises(InputError, match="workers do not store host keys"):
        on_every_device(
            fleet.hosts,
            gather_facts,
            print,
            PoolOptions(accept_new=True, executor=executor),
        )


def test_the_command_line(fleet: Fleet, cluster: Cluster, user_boards: Lab) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fleet", "facts", "-i", str(user_boards.inventory),
         "--limit", "lab001", "--executor", cluster.address, "--json"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [one["facts"]["soc"]["chip"] for one in json.loads(done.stdout)] == ["QCS9075"]
    assert done.stderr == ""
