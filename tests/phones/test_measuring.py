"""Looks at heat and clocks over a real adbd: mksh, toybox, the user shell."""

from __future__ import annotations

from pathlib import Path

from fleet.model.events import Cooling, Event
from fleet.runtimes.store import RuntimeStore
from tests.runners.kits import gguf

from .conftest import Make

TEXT = """
name: measured
bundle: {path: bundle, kind: llama.cpp}
run:
  program: llama-bench
  max_tokens: 4
  options: {prompt_tokens: 8}
  timeout: 30s
  cool: {below: 45C, timeout: 30s}
  sample: 200ms
"""
PROGRAM = """#!/system/bin/sh
sleep 0.7
echo '[{"devices": "HTP0", "backends": "HTP", "n_prompt": 8, "n_gen": 0, "avg_ts": 80.5},'
echo ' {"devices": "HTP0", "backends": "HTP", "n_prompt": 0, "n_gen": 4, "avg_ts": 9.5}]'
"""
HOT = "/sys/class/thermal/thermal_zone0/temp"


def test_a_phone_is_cooled_and_looked_at(desk: Make, tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "model.gguf").write_bytes(gguf())
    (tmp_path / "llama-bench").write_text(PROGRAM)
    (tmp_path / "playbook.yaml").write_text(TEXT)
    phone = desk(RuntimeStore(tmp_path / "runtimes"))
    phone.shell("phone001", f"echo 52000 > {HOT}")
    operation = phone.operation(tmp_path / "playbook.yaml", offline=True)

    def hear(event: Event) -> None:
        phone.events.append(event)
        if isinstance(event, Cooling):
            phone.shell("phone001", f"echo 34100 > {HOT}")

    operation._listener = hear
    (result,) = operation.deploy()
    assert result.error is None, result.error
    assert [one.zone for one in phone.events if isinstance(one, Cooling)] == ["nsphvx-0"]
    (record,) = result.records
    seen = record.conditions
    assert record.counts
    assert seen.before is not None
    assert seen.after is not None
    assert seen.before.zones["nsphvx-0"] == 34.1
    assert len(seen.during) >= 2
    assert seen.power == {"battery": "Charging", "usb": "online"}
    assert seen.before.clocks["cpu:policy0"] == 1.2e9
    assert seen.cost is not None
    assert seen.boot_id == seen.boot_id_after != ""
