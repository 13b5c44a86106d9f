"""Folders of onnxruntime-genai that are made from context binaries."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

from fleet.bundles.ep.genai import surroundings
from fleet.bundles.ep.graphs import Graph, GraphFile, Tensor
from fleet.cli.main import app
from fleet.model.errors import FleetError
from tests.bundles.conftest import BUILD
from tests.support_runtime import cache_root

ASSET = Path(__file__).parents[3] / "assets" / "tiny-genai-windowed"
MASK, TURN, CACHE = (50 / 65535, -65535), (2 / 65535, -32768), (0.04, -128)
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
CONFIG = {
    "rope_theta": 500000.0,
    "rope_scaling": LLAMA3,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128009],
    "num_attention_heads": 24,
    "hidden_size": 3072,
}


@pytest.mark.qairt
def test_the_shipped_folder_is_what_the_command_makes(
    tmp_path: Path, qnn_system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/programs runs that folder with the real onnxruntime-genai."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "runtimes").symlink_to(cache_root() / "runtimes")
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
    folder = tmp_path / "bins"
    folder.mkdir()
    for name in ("transformer_prompt.bin", "transformer_token.bin", "config.json"):
        shutil.copy(ASSET / name, folder)
    argv = ["bundle", "wrap-ep", "--genai", *map(str, sorted(folder.glob("*.bin"))), "--json"]
    done = CliRunner().invoke(app, argv)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    made = {Path(one["wrapper"]).name for one in said["wrappers"]}
    made |= {Path(path).name for path in said["files"]}
    shipped = {path.name for path in ASSET.iterdir() if path.suffix == ".onnx"}
    assert made == {*shipped, "genai_config.json"}
    for name in made:
        assert (folder / name).read_bytes() == (ASSET / name).read_bytes(), name


def exported(context: int = 4096) -> list[GraphFile]:
    """Three parts of two graphs each, as AI Hub exports Llama 3.2 3B; with two layers only."""

    def tensor(name: str, element: str, shape: tuple[int, ...], pair: Any = (None, None)) -> Tensor:
        return Tensor(name, element, shape, *pair)

    files = []
    for part in (3, 1, 2):  # in no order
        graphs = []
        for kind, width in (("token", 1), ("prompt", 128)):
            turned = [
                tensor("attention_mask", "UINT16", (1, 1, width, context), MASK),
                tensor("position_ids_cos", "UINT16", (1, 1, width, 64), TURN),
                tensor("position_ids_sin", "UINT16", (1, 1, width, 64), TURN),
            ]
            hidden = [tensor(f"hidden_{at}", "UINT16", (1, width, 3072), TURN) for at in (0, 1, 2)]
            logits = tensor("logits", "UINT16", (1, width, 128256), (0.002, -30000))
            inputs, outputs = [tensor("input_ids", "INT32", (1, width))], [hidden[0]]
            if part > 1:
                layer, past = part - 2, context - width
                inputs = [hidden[layer], *turned]
                outputs = [logits if part == 3 else hidden[1]]
                for name, shape, new in (
                    ("key", (8, 1, 128, past), (8, 1, 128, width)),
                    ("value", (8, 1, past, 128), (8, 1, width, 128)),
                ):
                    inputs.append(tensor(f"past_{name}_{layer}_in", "UINT8", shape, CACHE))
                    outputs.append(tensor(f"past_{name}_{layer}_out", "UINT8", new, CACHE))
            name = f"{kind}_ar{width}_cl{context}_{part}_of_3"
            graphs.append(Graph(name, tuple(inputs), tuple(outputs)))
        path = Path(f"llama_part_{part}_of_3.bin")
        files.append(GraphFile(path, f"v{BUILD}", 6, "5.51.0", 60, 73, tuple(graphs)))
    return files


def made(folder: Path, files: list[GraphFile], said: object = CONFIG) -> dict[str, bytes]:
    (folder / "config.json").write_text(json.dumps(said))
    return {path.name: content for path, content in surroundings(files, folder).items()}


def test_the_parts_of_an_export_are_joined_in_their_order(tmp_path: Path) -> None:
    said = json.loads(made(tmp_path, exported())["genai_config.json"])["model"]
    stages = [(name, stage) for part in said["decoder"]["pipeline"] for name, stage in part.items()]
    assert [name for name, _ in stages] == [
        "position-processor",
        "quantizer",
        *(f"prompt_ar128_cl4096_{at}_of_3" for at in (1, 2, 3)),
        *(f"token_ar1_cl4096_{at}_of_3" for at in (1, 2, 3)),
        "dequantizer",
    ]
    have = {"input_ids", said["decoder"]["inputs"]["attention_mask"], "position_ids"}
    have |= {f"past_{kind}_{at}_in" for kind in ("key", "value") for at in (0, 1)}
    for name, stage in stages:
        assert stage["filename"] == f"{name}.onnx"
        assert set(stage["inputs"]) <= have, "each stage reads what is there already"
        have |= set(stage["outputs"])
    assert said["decoder"]["outputs"]["logits"] in have
    runs = [(one.get("run_on_prompt"), one.get("run_on_token_gen")) for _, one in stages[2:-1]]
    assert runs == [(True, False)] * 3 + [(False, True)] * 3
    sizes = ("head_size", "num_hidden_layers", "num_key_value_heads", "num_attention_heads")
    assert [said["decoder"][name] for name in sizes] == [128, 2, 8, 24]
    assert (said["context_length"], said["vocab_size"]) == (4096, 128256)
    assert (said["eos_token_id"], said["pad_token_id"]) == ([128001, 128009], 128001)
    window = said["decoder"]["sliding_window"]
    assert (window["window_size"], window["pad_value"]) == (128, 128)


def test_of_several_contexts_the_longest_is_taken(tmp_path: Path) -> None:
    files = [
        replace(file, graphs=(*file.graphs, *shorter.graphs[: 2 * (at > 0)]))
        for at, (file, shorter) in enumerate(zip(exported(), exported(512), strict=True))
    ]
    files = [replace(file, graphs=file.graphs[:2] if "1_of_3" in str(file.path) else file.graphs)
             for file in files]  # fmt: skip
    said = json.loads(made(tmp_path, files)["genai_config.json"])["model"]
    names = [name for stage in said["decoder"]["pipeline"] for name in stage]
    assert len(names) == 9
    assert not any("cl512" in name for name in names)


def run(content: bytes, **inputs: np.ndarray) -> list[np.ndarray]:
    model = onnx.load_from_string(content)
    onnx.checker.check_model(model, full_check=True)
    return list(ReferenceEvaluator(model).run(None, inputs))


def test_the_parts_for_the_cpu_compute_what_the_graphs_were_quantised_for(tmp_path: Path) -> None:
    files = made(tmp_path, exported())
    there = np.zeros((1, 4096), np.int32)
    there[:, -130:] = 1
    at = np.arange(2, 130, dtype=np.int32).reshape(1, -1)
    mask, cos, sin = run(
        files["position-processor.onnx"], attention_mask_before_processor=there, position_ids=at
    )
    turns = [of_llama3(500000.0 ** (-pair / 64)) for pair in range(64)]
    angle = at.reshape(-1, 1) * np.array(turns)
    assert (mask.shape, cos.shape) == ((1, 1, 128, 4096), (1, 1, 128, 64))
    np.testing.assert_allclose(cos[0, 0], np.cos(angle), atol=2e-5)
    np.testing.assert_allclose(sin[0, 0], np.sin(angle), atol=2e-5)
    open_ = (np.arange(4096) <= np.arange(3968, 4096).reshape(-1, 1)) & (np.arange(4096) >= 3966)
    np.testing.assert_allclose(mask[0, 0], np.where(open_, 0, -50), rtol=1e-6)
    named = {"attention_mask": mask, "position_ids_cos": cos, "position_ids_sin": sin}
    stored = run(
        files["quantizer.onnx"], **{f"{k}_before_quantizer": one for k, one in named.items()}
    )
    assert [one.dtype for one in stored] == [np.dtype("uint16")] * 3
    assert set(np.unique(stored[0])) == {0, 65535}
    np.testing.assert_allclose((stored[1] - 32768.0) * TURN[0], cos, atol=TURN[0])
    (logits,) = run(files["dequantizer.onnx"], logits=np.full((1, 1, 128256), 30001, np.uint16))
    np.testing.assert_allclose(logits, 0.002)


def of_llama3(turn: float) -> float:
    """The three cases of the formula, by wavelength."""
    wave = 2 * math.pi / turn
    if wave < 8192 / 4:
        return turn
    if wave > 8192:
        return turn / 32
    smooth = (8192 / wave - 1) / 3
    return (1 - smooth) * turn / 32 + smooth * turn


def test_a_configuration_of_genie_describes_the_model_too(tmp_path: Path) -> None:
    scaling = {key.replace("_", "-"): one for key, one in LLAMA3.items()}
    place = {"type": "rope", "rope-dim": 64, "rope-theta": 500000, "rope-scaling": scaling}
    context = {"bos-token": 128000, "eos-token": [128001, 128009]}
    dialog = {"context": context, "engine": {"model": {"positional-encoding": place}}}
    (tmp_path / "genie_config.json").write_text(json.dumps({"dialog": dialog}))
    files = {path.name: content for path, content in surroundings(exported(), tmp_path).items()}
    assert files["position-processor.onnx"] == made(tmp_path, exported())["position-processor.onnx"]
    said = json.loads(files["genai_config.json"])["model"]
    assert (said["bos_token_id"], said["eos_token_id"]) == (128000, [128001, 128009])


def without(kind: str) -> list[GraphFile]:
    return [
        replace(one, graphs=tuple(g for g in one.graphs if kind not in g.name))
        for one in exported()
    ]


def cached_as(element: str) -> list[GraphFile]:
    def changed(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(replace(t, element=element) if "past" in t.name else t for t in tensors)

    return [
        replace(
            one,
            graphs=tuple(
                replace(g, inputs=changed(g.inputs), outputs=changed(g.outputs)) for g in one.graphs
            ),
        )
        for one in exported()
    ]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (lambda: without("prompt"), "graphs for 1 tokens at once"),
        (lambda: without("token"), "graphs for 128 tokens at once"),
        (lambda: exported()[1:], "hidden_1 of the last part are hidden states"),
        (lambda: [exported()[0], exported()[2]], "makes the input hidden_0"),
        (lambda: cached_as("UINT16"), "past_key_0_in is uint16"),
    ],
)
def test_binaries_that_make_no_folder(
    tmp_path: Path, files: Callable[[], list[GraphFile]], said: str
) -> None:
    with pytest.raises(FleetError, match=said):
        made(tmp_path, files())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"eos_token_id": None}, "eos_token_id"),
        ({"eos_token_id": "</s>"}, "eos_token_id"),
        ({"rope_theta": 0}, "rope_theta"),
        ({"rope_theta": None, "rope_scaling": None}, "rope_theta"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "longrope"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "factor"),
    ],
)
def test_a_description_with_a_fault(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(FleetError, match=said) as caught:
        made(tmp_path, exported(), CONFIG | change)
    assert "config.json" in str(caught.value)


def test_a_description_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match=r"has no config\.json"):
        surroundings(exported(), tmp_path)
