"""ONNX models in the real QNN provider on a board behind a real sshd, nothing on the CPU.

The model is a quantized MatMul with Relu, compiled for v73; the reference comes from the ONNX
package's own evaluator. The provider runs Qualcomm's emulator: the records say so.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from fleet.bundles.ep.graphs import read_graphs
from fleet.bundles.ep.wrapping import write_wrappers
from fleet.config.playbook import load_playbook
from fleet.model.record import Record
from fleet.runtimes.lock import file_lock
from tests.bundles.conftest import DATA, V73
from tests.support_runtime import X86, cache_root
from tests.transport.sshd import Sshd

from .conftest import Bench

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


def deploy(bench: Bench, folder: Path, **options: Any) -> tuple[Record, ...]:
    text = {
        "name": folder.parent.name,
        "bundle": {"path": "bundle", "kind": "ort"},
        "run": {"repeats": 1, "options": options},
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


def test_a_node_that_the_npu_does_not_have_is_no_run_on_the_cpu(bench: Bench, bundle: Path) -> None:
    """Without the switched-off fallback this model runs, on the CPU."""
    (bundle / "tiny.onnx").unlink()
    node = helper.make_node("Det", ["x"], ["out"])  # the QNN provider has no Det
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 4]),
        helper.make_tensor_value_info("out", TensorProto.FLOAT, [1]),
    ]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, str(bundle / "det.onnx"))
    with pytest.raises(AssertionError, match="fallback to CPU EP has been explicitly disabled"):
        deploy(bench, bundle)
    assert bench.current() is None
