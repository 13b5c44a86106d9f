"""Boards worked on by a real cluster: the same results, events in one place, files once."""

from __future__ import annotations

import json
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.engine.cluster.connecting import ClusterExecutor
from fleet.engine.pool import DeviceResult, PoolOptions, on_every_device
from fleet.engine.states import gather_facts
from fleet.model.events import DeviceDone, RunDone, StepStarted
from fleet.model.files import sha256_file
from fleet.model.plain import to_plain
from tests.profiles.records import load

from .conftest import MODEL_BYTES, Cluster, Fleet


def told(one: DeviceResult[Any]) -> tuple[object, ...]:
    """What a result says, without times and what differs from run to run."""
    assert one.plan is not None
    actions = [to_plain(each) for each in one.plan.actions]
    numbers = [(r.metrics, r.problems, r.files, r.repeat) for r in one.records]
    return one.outcome, one.text, one.bytes_sent, actions, numbers


def test_a_deploy_is_the_same_as_with_threads(
    fleet: Fleet, cluster: Cluster, executor: ClusterExecutor
) -> None:
    sites = ("berlin", "munich", "")
    boards = tuple(
        replace(host, labels={"site": site} if site else {})
        for host, site in zip(fleet.hosts, sites, strict=True)
    )
    fleet.hosts = (replace(fleet.hosts[0], base_dir=f"{fleet.hosts[0].base_dir}-near"),)
    (with_threads,) = fleet.operation(None).deploy()
    fleet.events.clear()
    fleet.hosts = boards
    operation = fleet.operation(executor)
    results = operation.deploy()
    assert [one.error for one in results] == [None] * 3
    assert [told(one) for one in results] == [told(with_threads)] * 3
    assert [one.host for one in results] == list(fleet.hosts)
    first = results[0].plan
    assert first is not None
    assert all(one.plan.manifest is first.manifest for one in results if one.plan)
    source = first.manifest.files[0].source
    assert source.is_relative_to(fleet.folder), "paths are the workstation's"

    for host in fleet.hosts:
        mine = [event for event in fleet.events if event.host == host.name]
        steps = [e.step for e in mine if isinstance(e, StepStarted) and e.step != "fetch"]
        assert steps == ["send", "stage", "health", "switch", "prune", "run"]
        assert isinstance(mine[-1], DeviceDone)
        assert [type(one) for one in mine].count(DeviceDone) == 1
        (run,) = [one.record for one in mine if isinstance(one, RunDone)]
        stored = Path(run["artifacts"]["stdout.log"])
        assert stored.is_relative_to(fleet.runs.root)
        assert "avg_ts" in stored.read_text()
    records = load(fleet.runs, operation.run_id)
    assert {one["host"] for one in records} == {host.name for host in fleet.hosts}
    on_disk = json.loads((fleet.runs.root / operation.run_id / "lab001/0/record.json").read_text())
    assert on_disk["artifacts"]["stdout.log"].startswith(str(fleet.runs.root))


def test_each_worker_machine_gets_each_blob_once_and_then_nothing(
    fleet: Fleet, cluster: Cluster, executor: ClusterExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.hide(monkeypatch)
    sites = ("berlin", "munich", "munich")
    at = zip(fleet.hosts, sites, strict=True)
    fleet.hosts = tuple(replace(host, labels={"site": site}) for host, site in at)
    operation = fleet.operation(executor, run="never")
    first = operation.deploy()
    assert [one.outcome for one in first] == ["changed"] * 3, [one.error for one in first]
    total = first[0].bytes_sent
    assert total > MODEL_BYTES
    (job,) = executor._jobs.values()

    def sent() -> dict[str, int]:
        return {name.split(" ")[0]: count for name, count in job.broadcast.bytes_sent.items()}

    machines = {f"{platform.node()}:{cluster.home(name)}" for name in ("berlin-1", "munich-1")}
    assert sent() == dict.fromkeys(machines, total), "once a machine, whatever the boards"
    for name in ("berlin-1", "munich-1"):
        model = sha256_file(fleet.folder / "bundle" / "model.gguf")
        blob = cluster.home(name) / "blobs" / model
        assert not blob.is_symlink()
        assert sha256_file(blob) == model
        assert not list(blob.parent.glob("*.part"))

    again = operation.deploy()
    assert [(one.outcome, one.bytes_sent) for one in again] == [("unchanged", 0)] * 3
    operation.hosts = (replace(fleet.hosts[0], base_dir=f"{fleet.hosts[0].base_dir}-more"),)
    (more,) = operation.deploy()
    assert more.bytes_sent == total
    assert sent() == dict.fromkeys(machines, total)


def test_a_shared_disk_is_used_as_it_is(
    fleet: Fleet, cluster: Cluster, executor: ClusterExecutor
) -> None:
    fleet.hosts = fleet.hosts[:1]
    (done,) = fleet.operation(executor, run="never").deploy()
    assert done.outcome == "changed", done.error
    (job,) = executor._jobs.values()
    assert job.broadcast.bytes_sent == {}


def test_facts_and_plan(fleet: Fleet, executor: ClusterExecutor) -> None:
    looked = on_every_device(
        fleet.hosts, gather_facts, fleet.events.append, PoolOptions(parallel=1, executor=executor)
    )
    assert {one.answer.soc.chip for one in looked} == {"QCS9075"}
    asked, heard = [], []
    some = executor.everywhere(
        fleet.hosts,
        gather_facts,
        fleet.events.append,
        PoolOptions(
            admit=lambda host: asked.append(host.name) or host.name != "lab002",  # type: ignore[func-returns-value]
            done=lambda result: heard.append(result.host.name),
        ),
    )
    assert [one.outcome for one in some] == ["ok", "not attempted", "ok"]
    assert (sorted(asked), sorted(heard)) == (["lab001", "lab002", "lab003"], ["lab001", "lab003"])
    planned = fleet.operation(executor).plan()
    assert {one.outcome for one in planned} == {"planned"}
    here = fleet.operation(None).plan()
    assert [told(one) for one in planned] == [told(one) for one in here]
