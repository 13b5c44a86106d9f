"""qnn_executor_runner with a .pte of ours on a board behind a real sshd, on the HTP emulator.

Of the emulators 2.49.40 reads the chip where ExecuTorch's wheel has it; the others read it four
bytes later and say `unknown custom config socModel 0` (docs/runners.md).
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.config.playbook import load_playbook
from fleet.engine.pool import DeviceResult
from tests.engine.conftest import Bench
from tests.support_runtime import X86, cached_runtime, cached_store
from tests.transport.sshd import Sshd

from .executorch import VERSION, runner
from .seen import ROOT, saw

WORKS, REFUSED = "2.49.40", "2.51.0"
TOLERANCE = 0.01
pytestmark = pytest.mark.qairt


@pytest.fixture(scope="module")
def built() -> tuple[Path, tuple[Path, ...]]:
    return runner()


def deployed(
    bench: Bench, folder: Path, built: tuple[Path, tuple[Path, ...]], version: str
) -> DeviceResult:
    program, libraries = built
    cached_runtime(version, X86)
    text = {
        "name": "executorch",
        "bundle": {"path": str(ROOT / "assets" / "tiny-executorch"), "kind": "executorch"},
        "runtime": version,
        "run": {
            "runner": "executorch", "program": str(program), "repeats": 2, "timeout": 60,
            "libraries": [str(path) for path in libraries],
            "options": {
                "iterations": 3, "profile_level": 0, "tolerance": TOLERANCE,
                "reference": {"output_0_0.raw": "y.raw"},
            },
        },
    }  # fmt: skip
    (folder / "playbook.yaml").write_text(json.dumps(text))
    bench.playbook = load_playbook(folder / "playbook.yaml")
    (result,) = bench.operation().deploy()
    return result


@pytest.fixture
def phone_chip(bench: Bench, board_server: Sshd) -> Bench:
    """The chip that the .pte was compiled for."""
    host = board_server.host(base_dir=str(bench.base), soc="SM8650")
    return replace(bench, host=host, store=cached_store())


def test_a_network_gives_its_outputs_and_times(
    phone_chip: Bench, tmp_path: Path, built: tuple[Path, tuple[Path, ...]]
) -> None:
    result = deployed(phone_chip, tmp_path, built, WORKS)
    assert result.error is None, result.error
    for record in result.records:
        assert record.problems == ()
        assert record.emulated
        others = record.metrics.others
        assert 0 <= others["output_0_0_max_abs"].value <= TOLERANCE
        assert others["inferences"].value == 3
        log = Path(record.artifacts["stderr.log"]).read_text()
        took = re.search(r"3 inference took ([0-9.]+) ms", log)
        assert took
        assert others["run_mean_ms"].value == pytest.approx(float(took[1]) / 3, rel=0.02)
        assert Path(record.artifacts["etdump.etdp"]).stat().st_size > 500
    on = f"the HTP emulator (QAIRT {WORKS}) of a board behind a real sshd (x86_64)"
    saw("executorch", "qnn_executor_runner", VERSION, on, "outputs within 0.01 of torch's, times")


def test_what_the_emulator_of_another_qairt_says(
    phone_chip: Bench, tmp_path: Path, built: tuple[Path, tuple[Path, ...]]
) -> None:
    result = deployed(phone_chip, tmp_path, built, REFUSED)
    assert "unknown custom config socModel 0" in str(result.error)
    assert phone_chip.current() is None


def test_a_chip_of_another_arch_is_refused_before_a_byte_moves(
    bench: Bench, tmp_path: Path, built: tuple[Path, tuple[Path, ...]]
) -> None:
    """v75 in the .pte, v73 on the board; on the emulator that is a warning only."""
    result = deployed(replace(bench, store=cached_store()), tmp_path, built, WORKS)
    assert result.plan is not None
    assert [found.rule for found in result.plan.findings if "v75" in found.message]
