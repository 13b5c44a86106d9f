"""playbooks/mllm-qwen3.yaml on a lab phone: exactly the files of the walk-through, and a run.

The QAIRT files are small stand-ins that say what they are (build, machine, arch), the context
binary is our own tiny one for v75, and the runner is a stand-in that checks on the phone that
everything is beside it and says so. No model runs.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fleet.engine.pool import DeviceResult
from fleet.lab import LabPhones
from tests.bundles import elves
from tests.standins import built

from .conftest import ROOT, Make
from .sdk import BUILD, LIBRARIES, SKEL, store_with_sdk

CONTEXT = ROOT / "tests" / "bundles" / "data" / "tiny_v75_soc57_qairt2.51.0.bin"
RUNNER = "mllm-qwen3-aot-runner"
MODEL, TOKENIZER, CONFIG = "qwen3-1.7B-lpbq-sha.bin", "qwen3-tokenizer.json", "config_1.7B.json"
OWN = ("libMllmRT.so", "libMllmCPUBackend.so")
OPS = ("libQnnLLaMAPackage_CPU.so", "libQnnLLaMAPackage_HTP.so")
PUSHED = {*LIBRARIES, SKEL, *OPS, *OWN, RUNNER, MODEL, TOKENIZER, CONFIG}


@pytest.fixture
def playbook(tmp_path: Path) -> Path:
    """The playbook as it is committed, beside what a user would put there."""
    bundle, build = tmp_path / "bundles" / "qwen3-1.7b-aot", tmp_path / "build"
    for folder in (bundle, build / "bin", tmp_path / "playbooks"):
        folder.mkdir(parents=True)
    shutil.copy(CONTEXT, bundle / MODEL)
    (bundle / TOKENIZER).write_text("{}")
    (bundle / CONFIG).write_text("{}")
    built(RUNNER, build / "bin")
    for name in OWN:
        (build / "bin" / name).write_bytes(elves.shared_object(android=True))
    for build_of, machine in (("aarch64-android", "aarch64"), ("hexagon-v75", "hexagon")):
        place = build / "LLaMAPackage" / build_of / "libQnnLLaMAPackage.so"
        place.parent.mkdir(parents=True)
        place.write_bytes(
            elves.shared_object(
                machine, arch=0x75 * (machine == "hexagon"), text=f"v{BUILD}", android=True
            )
        )
    return Path(shutil.copy(ROOT / "playbooks" / "mllm-qwen3.yaml", tmp_path / "playbooks"))


def only(results: list[DeviceResult[Any]]) -> DeviceResult[Any]:
    (result,) = results
    assert result.error is None, result.error
    return result


def test_exactly_the_list_of_the_walk_through_and_a_run(
    desk: Make, playbook: Path, tmp_path: Path
) -> None:
    store, _ = store_with_sdk(tmp_path)
    phone = desk(store, LabPhones(1, "sm8650", "phone"))
    result = only(phone.operation(playbook).deploy())
    assert result.plan is not None
    assert not result.plan.refused, result.plan.findings
    release = "/data/local/tmp/fleet/current/qwen3-aot"
    there = set(phone.shell("phone001", f"cd {release}/ && find . -type l").split())
    assert {one.removeprefix("./") for one in there} == PUSHED
    mode = phone.shell("phone001", f"stat -L -c %a {release}/{RUNNER} {release}/{SKEL}").split()
    assert mode == ["555", "444"]
    records = [
        json.loads(path.read_text("utf-8")) for path in sorted(phone.runs.root.rglob("record.json"))
    ]
    assert [one["warmup"] for one in records].count(False) == 5
    for one in records:
        assert one["problems"] == []
        assert one["emulated"] is True
        assert one["runner"] == "mllm"
        assert one["text"].startswith("checked 13 files")
        assert 'ar_len 32, prompt "What is the most popular cookie in the world?"' in one["text"]
        assert one["metrics"]["others"]["wall_ms"]["value"] > 0
        assert one["origin"]["op_packages"][0]["name"] == "QnnLLaMAPackage"
    out = next(phone.runs.root.rglob("stdout.log")).read_text("utf-8")
    assert "stand-in of fleet's tests" in out


def test_again_is_nothing_and_at_most_three_round_trips(
    desk: Make, playbook: Path, tmp_path: Path
) -> None:
    store, _ = store_with_sdk(tmp_path)
    phone = desk(store, LabPhones(1, "sm8650", "phone"))
    only(phone.operation(playbook).deploy())
    result = only(phone.operation(playbook).deploy())
    assert result.outcome == "unchanged"
    assert result.bytes_sent == 0
    assert result.round_trips <= 3


@pytest.mark.slow
def test_a_file_that_is_gone_on_the_phone_is_found_by_the_runner(
    desk: Make, playbook: Path, tmp_path: Path
) -> None:
    """The stand-in can fail: without this the test above would prove little."""
    store, _ = store_with_sdk(tmp_path)
    phone = desk(store, LabPhones(1, "sm8650", "phone"))
    only(phone.operation(playbook).deploy())
    phone.shell("phone001", f"chmod 0 /data/local/tmp/fleet/current/qwen3-aot/{OPS[1]}")
    (result,) = phone.operation(playbook).run()
    assert result.error is None, result.error
    assert [one.problems for one in result.records] == [("failed: exit status 1",)] * 4
    said = [path.read_text("utf-8") for path in phone.runs.root.rglob("stderr.log")]
    assert f"cannot read {OPS[1]}\n" in said


def test_another_chip_is_refused_before_a_byte_moves(
    desk: Make, playbook: Path, tmp_path: Path
) -> None:
    store, _ = store_with_sdk(tmp_path)
    phone = desk(store, LabPhones(1, "sm8750", "phone"))
    (result,) = phone.operation(playbook).deploy()
    assert result.plan is not None
    rules = {one.rule for one in result.plan.findings if one.refuses}
    assert {"arch-mismatch", "op-package-arch"} <= rules
    assert result.bytes_sent == 0
