"""qnn_executor_runner with a .pte of ours on a board behind a real sshd, on the HTP emulator.

Of the emulators 2.49.40 reads the chip where ExecuTorch's wheel has it; the others read it four
bytes later and say `unknown custom config socModel 0` (docs/runners.md).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.config.playbook import load_playbook
from fleet.engine.pool import DeviceResult
from fleet.model.errors import PreflightError
from fleet.profiles.formats.executorch import inferences
from tests.engine.conftest import Bench
from tests.support_runtime import X86, cached_runtime, cached_store
from tests.transport.sshd import Sshd

from .clocks import beside
from .executorch import VERSION, inspected, python, runner
from .seen import ROOT, VERSIONS, saw, saw_pair

WORKS = "2.49.40"
TOLERANCE = 0.01
KEPT = ROOT / "tests" / "profiles" / "real" / "executorch"
RUN_PTE = """
import array, json, pathlib, site, sys
site.addsitedir(PACKAGES)
import torch
from executorch.runtime import Runtime
x, y = (array.array("f", pathlib.Path(name).read_bytes()) for name in ("x.raw", "y.raw"))
method = Runtime.get().load_program(pathlib.Path("tiny.pte")).load_method("forward")
inputs = torch.tensor(x).reshape(method.metadata.input_tensor_meta(0).sizes())
(given,) = method.execute([inputs])
far = (given.flatten() - torch.tensor(y)).abs().max().item()
pathlib.Path(sys.argv[1]).write_text(json.dumps({"y_max_abs": far}))
"""
pytestmark = pytest.mark.qairt


@pytest.fixture(scope="module")
def built() -> tuple[Path, tuple[Path, ...]]:
    return runner()


def deployed(
    bench: Bench, folder: Path, built: tuple[Path, tuple[Path, ...]], version: str
) -> DeviceResult[Any]:
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
        read = inspected(Path(record.artifacts["etdump.etdp"]))
        assert read["delegate_call_us"] <= read["execute_us"]
        # three inferences by the clock around them, and by the events of each
        by, mean = "the etdump by ExecuTorch's own reader", others["run_mean_ms"].value
        beside("executorch", "mean of 3 inferences", by, mean, read["execute_us"] / 1000)
    on = f"the HTP emulator (QAIRT {WORKS}) of a board behind a real sshd (x86_64)"
    saw("executorch", "qnn_executor_runner", VERSION, on, "outputs within 0.01 of torch's, times")


def test_the_wheels_python_runtime_gives_the_same_outputs(
    phone_chip: Bench, tmp_path: Path
) -> None:
    """No sources are needed for it: the runner `exec` starts the wheel's own Python runtime."""
    program = tmp_path / "run_pte.py"
    program.write_text(f"#!{sys.executable} -I\nPACKAGES = {str(python())!r}\n{RUN_PTE}")
    program.chmod(0o755)
    cached_runtime(WORKS, X86)
    parse = [{"metric": "y_max_abs", "unit": "", "json": "y_max_abs", "file": "said.json"}]
    argv = ["{program}", "{work}/said.json"]
    text = {
        "name": "executorch", "runtime": WORKS,
        "bundle": {"path": str(ROOT / "assets" / "tiny-executorch"), "kind": "executorch"},
        "run": {
            "runner": "exec", "program": str(program), "timeout": 120,
            "options": {"argv": argv, "health": argv, "collect": ["said.json"], "parse": parse},
        },
    }  # fmt: skip
    (tmp_path / "p.yaml").write_text(json.dumps(text))
    phone_chip.playbook = load_playbook(tmp_path / "p.yaml")
    (result,) = phone_chip.operation().deploy()
    assert result.error is None, result.error
    (record,) = result.records
    assert record.problems == ()
    assert 0 <= record.metrics.others["y_max_abs"].value <= TOLERANCE
    on = f"the HTP emulator (QAIRT {WORKS}) of a board behind a real sshd (x86_64)"
    showed = "outputs within 0.01 of torch's, by runner exec"
    saw("executorch", "the Python runtime of its wheel", VERSION, on, showed)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_kept_etdumps_are_read_by_executorchs_own_reader(
    built: tuple[Path, tuple[Path, ...]], level: int
) -> None:
    """The mean of the inferences by the log that was kept beside each."""
    log = (KEPT / f"stderr_profile{level}.txt").read_text("utf-8")
    mean = inferences(log)["run_mean_ms"].value
    read = inspected(KEPT / f"etdump_profile{level}.etdp")
    assert read["execute_us"] / 1000 == pytest.approx(mean, rel=0.02)
    assert ("qnn_execute_us" in read) is (level > 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pair_works_or_is_refused_before_a_byte(
    phone_chip: Bench, tmp_path: Path, built: tuple[Path, tuple[Path, ...]], version: str
) -> None:
    """Beside it what the real program says with each QAIRT."""
    program, libraries = built
    folders = [cached_runtime(version, X86).root / "lib" / X86]
    folders += dict.fromkeys(path.parent for path in libraries)
    bundle = ROOT / "assets" / "tiny-executorch"
    argv = [str(program), "--model_path", "tiny.pte", "--input_list_path", "input_list.txt"]
    argv += ["--performance_output_path", str(tmp_path / "speed")]
    done = subprocess.run(
        [*argv, "--output_folder_path", str(tmp_path), "--etdump_path", str(tmp_path / "etdump")],
        env={"LD_LIBRARY_PATH": ":".join(map(str, folders))},
        cwd=bundle, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    works = version == WORKS
    assert (done.returncode == 0) is works
    assert ("unknown custom config socModel 0" in done.stdout + done.stderr) is not works
    assert (tmp_path / "output_0_0.raw").is_file() is works
    if not works:
        result = deployed(phone_chip, tmp_path, built, version)
        assert isinstance(result.error, PreflightError)
        for word in ("executorch-qairt", f"ExecuTorch {VERSION}", f"QAIRT {version}", "14001"):
            assert word in result.error.message
        assert result.bytes_sent == 0
    saw_pair(f"qnn_executor_runner {VERSION}", version, "works" if works else "refused")


def test_a_chip_of_another_arch_is_refused_before_a_byte_moves(
    bench: Bench, tmp_path: Path, built: tuple[Path, tuple[Path, ...]]
) -> None:
    """v75 in the .pte, v73 on the board; on the emulator that is a warning only."""
    result = deployed(replace(bench, store=cached_store()), tmp_path, built, WORKS)
    assert result.plan is not None
    assert [found.rule for found in result.plan.findings if "v75" in found.message]
