"""The whole ladder on the two kinds of lab board that come nearest to a real one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.lab import Lab
from fleet.lab.arm64 import QEMU, can_run_arm64
from fleet.lab.host import find
from fleet.lab.kernel import can_run_kernel
from fleet.runtimes.store import RuntimeStore
from fleet.selftest.ladder import HOLDS, Climbed, rungs
from tests.lab.uml import needs_kernel_boards

from .conftest import BOARD, Hill

pytestmark = [pytest.mark.slow, pytest.mark.root, pytest.mark.qairt]


def climbed_on(
    kind: str, why: Callable[[], str], tool: str, folder: Path, store: RuntimeStore
) -> Climbed:
    if lacking := why() or ("" if find(tool) else f"{tool} is not installed"):
        pytest.skip(f"no {kind} boards here: {lacking}")
    with Lab.up(folder, count=1, kind=kind, base_port=0) as lab:
        hill = Hill(lab, store, store.get("2.51.0"))
        result, climbed = hill.climb(BOARD, runtime=True, bulk=256 << 20)
        assert "selftest" not in hill.as_root(BOARD, "find /home/ubuntu")
    assert result.outcome == "ok", result.text
    assert [step.rung for step in climbed.steps] == list(rungs())
    assert all(step.listed for step in climbed.steps), [s for s in climbed.steps if not s.listed]
    print("".join(f"{step.rung.id} {step.seconds:.1f} s\n" for step in climbed.steps))  # noqa: T201
    return climbed


def holding(climbed: Climbed) -> set[str]:
    return {step.rung.id for step in climbed.steps if step.status == HOLDS}


def test_a_kernel_board(tmp_path: Path, qairt_store: RuntimeStore) -> None:
    needs_kernel_boards()
    climbed = climbed_on("kernel", can_run_kernel, "linux.uml", tmp_path, qairt_store)
    assert holding(climbed) >= {"transfer", "device", "context", "genie", "token-limit", "ort"}
    assert climbed.facts.kernel != Path("/proc/sys/kernel/osrelease").read_text().strip()


def test_an_arm64_board_says_why_it_has_no_device(
    tmp_path: Path, qairt_store: RuntimeStore
) -> None:
    climbed = climbed_on("arm64", can_run_arm64, QEMU, tmp_path, qairt_store)
    assert holding(climbed) >= {"rules", "library", "dsp", "transfer", "files", "backend"}
    (device,) = [step for step in climbed.steps if step.rung.id == "device"]
    assert "errno Function not implemented" in device.words, "libcdsprpc told syslog alone"
    assert "Failed to parse platform config: 14001" in device.words
