"""ONNX models in the real QNN provider on a board behind a real sshd, nothing on the CPU.

The model is a quantized MatMul with Relu, compiled for v73; the reference comes from the ONNX
package's own evaluator. The provider runs Qualcomm's emulator: the records say so.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from fleet.bundles.ep.graphs import read_graphs
from fleet.bundles.ep.wrapping import write_wrappers
from fleet.config.playbook import load_playbook
from fleet.model.record import Record
from fleet.runtimes.stage import file_lock
from tests.bundles.conftest import DATA, V73
from tests.bundles.onnx_models import RIGHT, WRONG, model
from tests.support_runtime import X86, cache_root
from tests.transport.sshd import Sshd

from .conftest import Bench

ROOT = Path(__file__).parents[2]
QUANTUM = 0.05  # of the output: s_out of mkmodel.py
pytestmark = pytest.mark.qairt


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One base folder: 230 MB of packages go there once."""
    return tmp_path_factory.mktemp("ort") / "base"


@pytest.fixture
def bench(bench: Bench, board_server: Sshd, shared: Path) -> Bench:
    host = board_server.host(base_dir=str(shared), soc="QCS9075")
    return replace(bench, base=shared, host=host)


@pytest.fixture
def bundle(tmp_path: Path, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wrapper made by fleet, an input, and what the model gives for it."""
    monkeypatch.setenv("FLEET_HOME", str(cache_root() / "home"))  # packages outlive the run
    folder = tmp_path / "bundle"
    folder.mkdir()
    shutil.copy(DATA / V73, folder / "tiny.bin")
    runtime = bench.store.find("2.51.0", X86)
    assert runtime is not None
    write_wrappers([read_graphs(folder / "tiny.bin", runtime.root / f"lib/{X86}/libQnnSystem.so")])
    x = np.random.default_rng(1).random((1, 8, 64), dtype=np.float32)
    np.save(folder / "x.npy", x)
    (out,) = ReferenceEvaluator(onnx.load(str(DATA / "tiny_u8.onnx"))).run(None, {"x": x})
    np.save(folder / "out.npy", out)
    return folder


def deploy(
    bench: Bench, folder: Path, *, run: dict[str, Any] | None = None, **options: Any
) -> tuple[Record, ...]:
    text = {
        "name": folder.parent.name,
        "bundle": {"path": "bundle", "kind": "ort"},
        "run": {"repeats": 1, "options": options, **(run or {})},
    }
    path = folder.parent / "playbook.yaml"
    path.write_text(json.dumps(text))
    bench.playbook = load_playbook(path)
    with file_lock(cache_root() / "packages.lock", 900):
        (result,) = bench.operation().deploy()
    assert result.error is None, result.error
    return tuple(result.records)


def test_a_context_binary_within_one_quantum_of_the_reference(bench: Bench, bundle: Path) -> None:
    (record,) = deploy(
        bench,
        bundle,
        inputs={"x": "x.npy"},
        reference={"out": "out.npy"},
        tolerance=QUANTUM * 1.01,
        profiling="detailed",
        iterations=5,
    )
    assert record.problems == ()
    assert record.emulated
    others = record.metrics.others
    assert 0 <= others["out_max_abs"].value <= QUANTUM * 1.01
    assert others["out_cosine"].value > 0.999
    assert others["inferences"].value == 5
    assert record.metrics.init_ms is not None
    assert others["run_min_ms"].value <= others["run_ms"].value <= others["run_max_ms"].value
    rows = Path(record.artifacts["profile.csv"]).read_text().splitlines()
    assert rows[0].startswith("Msg Timestamp,Message,Time,Unit of Measurement")
    assert any("CYCLES" in row for row in rows[1:])
    assert record.origin["build_id"] == "2.51.0.260929181845"
    names = [name for name in record.files if name.startswith("site/")]
    assert any(name.endswith("libonnxruntime_providers_qnn.so") for name in names)
    assert any("numpy-" in name and "LICENSE" in name.upper() for name in names)
    (again,) = bench.operation().deploy()
    assert (again.outcome, again.bytes_sent) == ("unchanged", 0)

    (wrong,) = deploy(
        bench, bundle, inputs={"x": "x.npy"}, reference={"out": "out.npy"}, tolerance=1e-6
    )
    assert [problem.split(" by ")[0] for problem in wrong.problems] == [
        "wrong: the output out differs"
    ]
    assert not wrong.counts


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"inputs": {"y": "x.npy"}}, "no input y; the model has x"),
        ({"inputs": {"x": "out.npy"}}, "input x is float32 [1, 8, 32]; the model needs float32"),
        ({"reference": {"nowhere": "out.npy"}}, "no output nowhere; the model has out"),
    ],
)
def test_what_does_not_fit_the_model_is_said(
    bench: Bench, bundle: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(AssertionError, match="cannot open an NPU session") as caught:
        deploy(bench, bundle, **options)
    assert said in str(caught.value)
    assert bench.current() is None, "the release was not switched"


@pytest.mark.parametrize("name", RIGHT)
def test_models_that_qnn_takes_run_on_the_emulator(bench: Bench, tmp_path: Path, name: str) -> None:
    onnx.save(RIGHT[name](), str(_folder(tmp_path) / "model.onnx"))
    (record,) = deploy(bench, tmp_path / "bundle", iterations=1, profiling="off")
    assert record.problems == ()
    assert record.emulated


@pytest.mark.parametrize("name", WRONG)
def test_models_that_qnn_does_not_take_send_no_byte(
    bench: Bench, tmp_path: Path, name: str
) -> None:
    make, rule, word = WRONG[name]
    onnx.save(make(), str(_folder(tmp_path) / "model.onnx"))
    before = bench.current()
    with pytest.raises(AssertionError, match=re.escape(word)) as caught:
        deploy(bench, tmp_path / "bundle")
    assert rule in str(caught.value) or "refuse" in str(caught.value)
    assert bench.current() == before
    assert not list(bench.base.rglob("bundle/model.onnx.part"))


def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "bundle"
    folder.mkdir()
    return folder


def test_a_node_that_stays_on_the_cpu_is_named_after_the_session(
    bench: Bench, tmp_path: Path
) -> None:
    """An Erf alone: nothing is claimed of it, because QNN takes it as a part of a Gelu."""
    onnx.save(model([("Erf", "x", "y")]), str(_folder(tmp_path) / "model.onnx"))
    with pytest.raises(AssertionError, match="the CPU: Operators of type `Erf` are not"):
        deploy(bench, tmp_path / "bundle")
    assert bench.current() is None


def test_the_same_model_on_the_cpu_is_marked(bench: Bench, tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    onnx.save(RIGHT["matmul-float"](), str(folder / "model.onnx"))
    (npu,) = deploy(bench, folder, iterations=1, profiling="off")
    (cpu,) = deploy(bench, folder, iterations=1, profiling="off", accelerator="cpu")
    assert cpu.problems == ()
    assert "cpu" in cpu.marks
    assert "cpu" not in npu.marks


def test_the_perplexity_of_logits_is_in_the_record(bench: Bench, tmp_path: Path) -> None:
    """A table of logits by token: what softmax gives is known, and a limit below it fails."""
    folder = _folder(tmp_path)
    table = np.random.default_rng(2).normal(0, 2, (40, 40)).astype(np.float32)
    ids = np.random.default_rng(3).integers(0, 40, (1, 12))
    np.save(tmp_path / "ids.npy", ids)
    ends = [onnx.helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in (
        ("input_ids", onnx.TensorProto.INT64, [1, 12]),
        ("logits", onnx.TensorProto.FLOAT, [1, 12, 40]))]  # fmt: skip
    node = onnx.helper.make_node("Gather", ["table", "input_ids"], ["logits"])
    graph = onnx.helper.make_graph(
        [node], "lm", ends[:1], ends[1:], [onnx.numpy_helper.from_array(table, "table")]
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8),
              str(folder / "model.onnx"))  # fmt: skip
    deploy(bench, folder, accelerator="cpu")
    shares = np.exp(table.astype(np.float64))
    shares /= shares.sum(1, keepdims=True)
    right = float(np.exp(-np.log(shares[ids[0, :-1], ids[0, 1:]]).mean()))
    text = json.loads((tmp_path / "playbook.yaml").read_text())
    for factor in (1.01, 0.99):
        text["verify"] = {"gate": "off", "perplexity": {"at_most": right * factor},
                          "samples": [{"inputs": {"input_ids": "ids.npy"}}]}  # fmt: skip
        (tmp_path / "playbook.yaml").write_text(json.dumps(text))
        bench.playbook = load_playbook(tmp_path / "playbook.yaml")
        (result,) = bench.operation().verify()
        assert result.records[-1].metrics.others["perplexity"].value == pytest.approx(right)
        assert (result.error is None) is (factor > 1)
    assert "the perplexity over all samples is" in str(result.error)


def test_a_decoder_alone_generates_with_its_cache(bench: Bench, tmp_path: Path) -> None:
    """The tokens are those of the genai folder of the same model (tests/programs/test_genai.py)."""
    folder = _folder(tmp_path)
    for name in ("model.onnx", "model_qnn.bin"):
        shutil.copy(ROOT / "assets" / "tiny-genai" / name, folder / name)
    tokens = np.array([216, 129, 132, 479, 181, 23, 339, 253])
    np.save(folder / "tokens.npy", tokens)
    (record,) = deploy(
        bench,
        folder,
        tokens=[281, 275, 301, 32],
        reference={"tokens": "tokens.npy"},
        tolerance=0,
        iterations=2,
        run={"max_tokens": 8, "token_limit_counts": True},
    )
    assert record.problems == ()
    assert record.metrics.generated_tokens == 8
    assert record.metrics.ttft_ms is not None
