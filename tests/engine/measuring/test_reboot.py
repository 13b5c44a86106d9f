"""A power cut in the middle of a run: the record says so, and counts for nothing."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.config.inventory import load_inventory
from fleet.config.playbook import load_playbook
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.options import DeployOptions
from fleet.lab import Lab
from fleet.lab.namespace import can_unshare
from fleet.model.events import Event, Output
from fleet.profiles.runs import RunStore
from fleet.runtimes.store import RuntimeStore
from tests.runners.kits import gguf

from .conftest import TEXT

PROGRAM = """#!/bin/sh
if [ -e /home/ubuntu/slow ]; then echo begun; sleep 20; fi
echo '[{"devices": "HTP0", "backends": "HTP", "n_prompt": 8, "n_gen": 0, "avg_ts": 80.5},'
echo ' {"devices": "HTP0", "backends": "HTP", "n_prompt": 0, "n_gen": 4, "avg_ts": 9.5}]'
"""


@pytest.mark.root
def test_a_power_cut_in_a_run(tmp_path: Path) -> None:
    why = can_unshare()
    if why:
        pytest.skip(f"no namespace boards here: {why}")
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "model.gguf").write_bytes(gguf())
    (tmp_path / "llama-bench").write_text(PROGRAM)
    (tmp_path / "playbook.yaml").write_text(TEXT)
    with Lab.up(tmp_path / "lab", count=1, kind="namespace", base_port=0) as lab:
        cuts: list[threading.Thread] = []

        def hear(event: Event) -> None:
            if isinstance(event, Output) and "begun" in event.text and not cuts:
                cuts.append(threading.Thread(target=lab.power_cycle, args=("lab001",)))
                cuts[0].start()

        (host,) = load_inventory(lab.inventory).hosts
        operation = Operation(
            load_playbook(tmp_path / "playbook.yaml"),
            [replace(host, soc="QCS9075")],
            hear,
            options=DeployOptions(run="always", offline=True),
            resources=Resources(RuntimeStore(tmp_path / "runtimes"), RunStore(tmp_path / "runs")),
        )
        (first,) = operation.deploy()
        assert first.error is None, first.error
        assert first.records[0].conditions.before is not None
        assert first.records[0].conditions.before.zones["nspss-0"] == 41.3
        assert lab.exec("lab001", ["touch", "/home/ubuntu/slow"]).returncode == 0
        (result,) = operation.run()
        cuts[0].join()
    assert result.error is not None
    (record,) = result.records
    assert not record.counts
    # A board that is not up again at the first look is only known to be gone.
    assert record.problems in {("rebooted",), ("the connection broke",)}
    assert ("rebooted" in result.error.message) == (record.problems == ("rebooted",))
