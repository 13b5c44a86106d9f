"""Gates and looks where dask workers carry out the work: the playbook travels as a pickle."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.engine.cluster.connecting import ClusterExecutor
from fleet.engine.cluster.wire import event_of
from fleet.lab import Lab
from fleet.model.events import Cooling, Event
from fleet.model.gates import CoolSpec, UntilSpec
from fleet.model.plain import to_plain

from .conftest import Fleet

ZONE = "sysroot/sys/class/thermal/thermal_zone0/temp"


def test_cooling_travels() -> None:
    event = Cooling("evk", "nspss-0", 52.0, 45.0, 10.0)
    assert event_of(to_plain(event)) == event


@pytest.mark.slow
def test_gates_work_on_workers(executor: ClusterExecutor, fleet: Fleet, user_boards: Lab) -> None:
    assert fleet.playbook.run is not None
    zone = user_boards.folder.board(fleet.hosts[0].name) / ZONE
    zone.write_text("52000\n")
    cool = CoolSpec(45.0, timeout=60.0)
    run = replace(fleet.playbook.run, repeats=1, cool=cool, until=UntilSpec(0.5), sample=0.1)
    fleet.playbook = replace(fleet.playbook, run=run)
    operation = fleet.operation(executor)
    seen: list[Event] = []

    def hear(event: Event) -> None:
        seen.append(event)
        if isinstance(event, Cooling):
            zone.write_text("40000\n")

    operation._listener = hear
    results = operation.deploy()
    assert [one.error for one in results] == [None] * len(fleet.hosts)
    assert {one.host for one in seen if isinstance(one, Cooling)} == {fleet.hosts[0].name}
    for result in results:
        assert len(result.records) == 5, "until: five runs are the least that have an interval"
        for record in result.records:
            assert record.conditions.before is not None
            assert record.conditions.before.zones["nspss-0"] < 45.0
            assert "fleet-looks.txt" in record.artifacts
