"""onnxruntime-genai with the QNN provider on a board behind a real sshd: a decoder of ours, as a
context binary. The provider runs Qualcomm's emulator, and the CPU is switched off.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleet.config.playbook import load_playbook
from fleet.engine.pool import DeviceResult
from fleet.runners.genai import PACKAGE
from fleet.runtimes.stage import file_lock
from tests.engine.conftest import Bench
from tests.support_runtime import NEW, X86, cache_root, cached_runtime, cached_store

from .clocks import beside, board
from .larger import make
from .seen import ROOT, VERSIONS, saw, saw_pair

TOKENS = 8
pytestmark = pytest.mark.qairt


@pytest.fixture
def own(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("FLEET_HOME", str(cache_root() / "home"))  # packages outlive the run
    shutil.copytree(ROOT / "assets" / "tiny-genai", tmp_path / "bundle")
    return bench


def deployed(
    bench: Bench,
    folder: Path,
    bundle: Path | str = "bundle",
    runtime: str = NEW,
    prompt: str = "What is fleet?",
) -> DeviceResult[Any]:
    text = {
        "name": "genai",
        "bundle": {"path": str(bundle), "kind": "ort"},
        "runtime": runtime,
        "run": {
            "runner": "genai", "prompt": prompt, "max_tokens": TOKENS, "repeats": 2,
            "token_limit_counts": True, "timeout": 60,
        },
    }  # fmt: skip
    (folder / "playbook.yaml").write_text(json.dumps(text))
    bench.playbook = load_playbook(folder / "playbook.yaml")
    with file_lock(cache_root() / "packages.lock", 900):
        (result,) = bench.operation().deploy()
    return result


def test_a_decoder_as_a_context_binary(own: Bench, tmp_path: Path) -> None:
    result = deployed(own, tmp_path)
    assert result.error is None, result.error
    first, second = result.records
    for record in (first, second):
        assert record.problems == ()
        assert record.emulated
        outcome = json.loads(Path(record.artifacts["outcome.json"]).read_text())
        assert outcome["npu_alone"] is True
        times = outcome["token_seconds"]
        assert record.metrics.generated_tokens == TOKENS == len(times)
        assert record.metrics.prompt_tokens == 4
        assert record.metrics.ttft_ms == pytest.approx(times[0] * 1000, rel=0.02)
        assert record.metrics.decode_tps == pytest.approx(
            (TOKENS - 1) / (times[-1] - times[0]), rel=0.02
        )
    assert first.text == second.text != ""
    version, packages = PACKAGE.partition("==")[2], f"QAIRT {NEW}"
    on = f"the HTP emulator ({packages}) of a board behind a real sshd (x86_64)"
    saw("genai", "onnxruntime-genai", version, on, "text and times; no node on the CPU")


def test_the_times_of_a_generation_are_those_of_another_clock(own: Bench, tmp_path: Path) -> None:
    with board(tmp_path) as (server, times):
        mine = replace(own, host=server.host(base_dir=str(own.base), soc="QCS9075"))
        result = deployed(mine, tmp_path)
    assert result.error is None, result.error
    metrics, took = result.records[-1].metrics, [1000 * at for at in json.loads(times.read_text())]
    by = "a clock around the calls into onnxruntime-genai in the same process"
    beside("genai", "time to the first token", by, metrics.ttft_ms, took[0])
    beside("genai", "the other tokens", by, metrics.decode_ms, took[-1] - took[0])


def test_a_pipeline_of_two_parts_says_the_same(own: Bench, tmp_path: Path) -> None:
    """The embedding is for the CPU by its configuration; the other part is not let there."""
    whole = deployed(own, tmp_path)
    result = deployed(own, tmp_path, ROOT / "assets" / "tiny-genai-pipeline")
    assert result.error is None, result.error
    for record, other in zip(result.records, whole.records, strict=True):
        assert (record.problems, record.text) == ((), other.text)
        outcome = json.loads(Path(record.artifacts["outcome.json"]).read_text())
        assert outcome["npu_alone"] == ["decoder"]
        assert record.metrics.generated_tokens == TOKENS
    on = f"the HTP emulator (QAIRT {NEW}) of a board behind a real sshd (x86_64)"
    showed = "text and times; the embedding on the CPU, no other node"
    saw("genai", "onnxruntime-genai, a pipeline", PACKAGE.partition("==")[2], on, showed)


def test_a_prompt_and_a_token_graph_with_a_sliding_cache(own: Bench, tmp_path: Path) -> None:
    """The layout of Llama 3.2 for Snapdragon; the tokens are those that numpy gives."""
    folder = ROOT / "assets" / "tiny-genai-windowed"
    result = deployed(own, tmp_path, folder, prompt="What is fleet? What is")
    assert result.error is None, result.error
    for record in result.records:
        assert record.problems == ()
        outcome = json.loads(Path(record.artifacts["outcome.json"]).read_text())
        assert outcome["npu_alone"] == ["transformer_prompt", "transformer_token"]
        assert outcome["tokens"] == [int(one) for one in np.load(folder / "tokens.npy")[:TOKENS]]
        assert record.metrics.prompt_tokens == len(np.load(folder / "prompt.npy")) == 7
        assert record.metrics.generated_tokens == TOKENS


@pytest.mark.parametrize("version", VERSIONS)
def test_it_works_with_each_qairt(own: Bench, tmp_path: Path, version: str) -> None:
    """The decoder as ONNX, which each QAIRT compiles for itself."""
    cached_runtime(version, X86)
    bundle = tmp_path / "bundle"
    config = json.loads((bundle / "genai_config.json").read_text())
    htp = {"backend_path": "libQnnHtp.so"}
    config["model"]["decoder"]["session_options"]["provider_options"] = [{"qnn": htp}]
    (bundle / "genai_config.json").write_text(json.dumps(config))
    (bundle / "model_qnn.bin").unlink()
    make("make_genai", bundle / "model.onnx", "maker.onnx.save(maker.model(), sys.argv[1])")
    result = deployed(replace(own, store=cached_store()), tmp_path, runtime=version)
    assert result.error is None, result.error
    assert [record.problems for record in result.records] == [(), ()]
    saw_pair(PACKAGE.replace("==", " "), version, "works")


def test_a_decoder_that_qnn_does_not_take_is_no_run_on_the_cpu(own: Bench, tmp_path: Path) -> None:
    """Without the overlay it runs, on the CPU; the provider is named all the same."""
    config = tmp_path / "bundle" / "genai_config.json"
    said = json.loads(config.read_text())
    said["model"]["decoder"]["filename"] = "det.onnx"
    config.write_text(json.dumps(said))
    write_det(tmp_path / "bundle" / "det.onnx")
    for name in ("model.onnx", "model_qnn.bin"):
        (tmp_path / "bundle" / name).unlink()
    result = deployed(own, tmp_path)
    assert "fallback to CPU EP has been explicitly disabled" in str(result.error)


def write_det(path: Path) -> None:
    """A decoder's inputs and outputs around an operation that QNN does not have."""
    import onnx
    from onnx import TensorProto, helper

    info, number = helper.make_tensor_value_info, TensorProto.FLOAT
    cache = [1, 1, 64, 16]
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["x"], to=number),
        helper.make_node("Det", ["x"], ["d"]),
        helper.make_node("Cast", ["position_ids"], ["p"], to=number),
        helper.make_node("Add", ["d", "p"], ["s"]),
        helper.make_node("Expand", ["s", "shape"], ["logits"]),
        *(
            helper.make_node("Identity", [f"past_key_values.0.{name}"], [f"present.0.{name}"])
            for name in ("key", "value")
        ),
    ]
    shape = helper.make_tensor("shape", TensorProto.INT64, [3], [1, 1, 480])
    inputs = [info(name, TensorProto.INT64, [1, 1]) for name in ("input_ids", "position_ids")]
    inputs += [info(f"past_key_values.0.{name}", number, cache) for name in ("key", "value")]
    outputs = [info("logits", number, [1, 1, 480])]
    outputs += [info(f"present.0.{name}", number, cache) for name in ("key", "value")]
    graph = helper.make_graph(nodes, "det", inputs, outputs, [shape])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
