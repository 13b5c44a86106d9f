"""One measured generation of a T5 of ours: encoder, decoder and decoder with past, on the NPU path
of the emulator through onnxruntime-qnn, on a board behind a real sshd.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleet.config.playbook import load_playbook
from fleet.engine.pool import DeviceResult
from fleet.runtimes.stage import file_lock
from tests.engine.conftest import Bench
from tests.support_runtime import NEW, cache_root, cached_store

from .seen import ROOT, saw

FOLDER = ROOT / "assets" / "tiny-t5"
TOKENS = [int(token) for token in np.load(FOLDER / "tokens.npy")]  # by ONNX's own evaluator
pytestmark = pytest.mark.qairt


@pytest.fixture
def own(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("FLEET_HOME", str(cache_root() / "home"))  # packages outlive the run
    return replace(bench, store=cached_store())


def deployed(bench: Bench, folder: Path, max_tokens: int) -> DeviceResult[Any]:
    options = {
        "model": "encoder_model.onnx", "decoder": "decoder_model.onnx",
        "decoder_with_past": "decoder_with_past_model.onnx", "iterations": 3, "tolerance": 0,
        "inputs": {name: f"{name}.npy" for name in ("input_ids", "attention_mask")},
        "keep_outputs": True,
        "reference": {"tokens": "tokens.npy"} if max_tokens > len(TOKENS) else {},
    }  # fmt: skip
    text = {
        "name": "t5", "bundle": {"path": str(FOLDER), "kind": "ort"}, "runtime": NEW,
        "run": {
            "runner": "ort", "max_tokens": max_tokens, "repeats": 1, "timeout": 120,
            "options": options,
        },
    }  # fmt: skip
    (folder / "p.yaml").write_text(json.dumps(text))
    with file_lock(cache_root() / "packages.lock", 900):
        (result,) = replace(bench, playbook=load_playbook(folder / "p.yaml")).operation().deploy()
    return result


def test_one_generation_is_measured(own: Bench, tmp_path: Path) -> None:
    result = deployed(own, tmp_path, 16)
    assert result.error is None, result.error
    (record,) = result.records
    assert (record.problems, record.finish, record.emulated) == ((), "eos", True)
    assert list(np.load(Path(record.artifacts["outputs"], "0.npy"))) == TOKENS
    metrics, others = record.metrics, record.metrics.others
    assert (metrics.generated_tokens, others["inferences"].value) == (len(TOKENS), 3)
    assert metrics.ttft_ms is not None
    assert metrics.decode_ms is not None
    assert 0 < others["encoder_ms"].value < metrics.ttft_ms
    assert metrics.ttft_ms + metrics.decode_ms <= others["run_max_ms"].value
    on = f"the HTP emulator (QAIRT {NEW}) of a board behind a real sshd (x86_64)"
    showed = "T5: the tokens of ONNX's own evaluator, and times; no node on the CPU"
    saw("ort", "onnxruntime-qnn, encoder, decoder and decoder with past", "2.7.0", on, showed)


def test_a_generation_that_the_limit_cut_is_marked(own: Bench, tmp_path: Path) -> None:
    result = deployed(own, tmp_path, 4)
    assert result.error is None, result.error
    (record,) = result.records
    assert record.problems == ()
    assert record.marks == ("cut: the output reached the token limit of 4",)
    assert list(np.load(Path(record.artifacts["outputs"], "0.npy"))) == TOKENS[:4]
