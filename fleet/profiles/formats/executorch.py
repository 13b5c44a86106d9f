"""ExecuTorch: the line of PyTorchObserver, and the etdump where ExecuTorch's reader is there.

The reader (executorch.devtools) is a package of its own and large, so it is never needed.
"""

from __future__ import annotations

import importlib
import json
import re
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleet.model.errors import ProfileError
from fleet.model.record import Measure, Metrics, Op
from fleet.profiles.formats.base import Profile, finite, mean

OBSERVER = "PyTorchObserver {"
INSTALL = "pip install executorch"
_OBSERVED = re.compile(r"PyTorchObserver (\{.*\})")


def observed(text: str) -> dict[str, Measure]:
    """`PyTorchObserver {...}`: extension/llm/runner/stats.h of pytorch/executorch; else {}."""
    match = _OBSERVED.search(text)
    try:
        said: Any = json.loads(match[1]) if match else {}
        scale = float(said.get("SCALING_FACTOR_UNITS_PER_SECOND", 1000))

        def between(one: str, two: str) -> float:
            return (float(said[two]) - float(said[one])) / scale

        generated, prompt = int(said["generated_tokens"]), int(said["prompt_tokens"])
        prefill = between("inference_start_ms", "prompt_eval_end_ms")
        decode = between("prompt_eval_end_ms", "inference_end_ms")
        found = {
            "prompt_tokens": Measure(prompt),
            "generated_tokens": Measure(generated),
            "init_ms": Measure(1000 * between("model_load_start_ms", "model_load_end_ms"), "ms"),
            "ttft_ms": Measure(1000 * between("inference_start_ms", "first_token_ms"), "ms"),
            "decode_ms": Measure(1000 * decode, "ms"),
        }
        rates = (("prompt_tps", prompt, prefill), ("decode_tps", generated, decode))
        found |= {n: Measure(count / took, "tok/s") for n, count, took in rates if took > 0}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, ZeroDivisionError):
        return {}
    except RecursionError:
        return {}
    return found if all(finite(one.value) is not None for one in found.values()) else {}


def read_log(text: str) -> Profile:
    """A profile of that line. Raises ProfileError."""
    found = observed(text)
    if not found:
        raise ProfileError("the line of PyTorchObserver cannot be read")
    metrics = replace(Metrics.of(found), source=found)
    return Profile("executorch-log", metrics, runner="executorch")


def read_etdump(data: bytes) -> Profile:
    """Operations of an etdump in µs, by ExecuTorch's own Inspector.

    Raises ProfileError: its reader is not installed, or cannot read the file.
    """
    try:
        devtools = importlib.import_module("executorch.devtools")
    except ImportError as error:
        raise ProfileError(
            "an etdump is read by ExecuTorch's own reader, which is not installed", hint=INSTALL
        ) from error
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "etdump.etdp")
        path.write_bytes(data)
        try:
            return _inspected(devtools.Inspector(etdump_path=str(path)))
        except Exception as error:
            raise ProfileError(
                f"ExecuTorch's reader cannot read the etdump: {type(error).__name__}: {error}",
                hint="use the executorch version that made the .pte",
            ) from error


def _inspected(inspector: Any) -> Profile:  # noqa: ANN401 - a foreign class
    """`event_blocks[].events[].perf_data.raw`, in ms: the Inspector's target_time_scale where
    none is asked for (docs of executorch: Inspector APIs).
    """
    ops: list[Op] = []
    found: dict[str, Measure] = {}
    for block in inspector.event_blocks:
        for event in block.events:
            raw = _numbers(getattr(event.perf_data, "raw", None) or ())
            if not raw:
                continue
            name, took = str(event.name), mean(raw) * 1000
            if name == "Method::execute":
                found["execute_us"] = Measure(took, "us")
            elif name == "Method::init":
                found["load_us"] = Measure(took, "us")
            elif "::" not in name:
                backend = str(getattr(event, "delegate_backend_name", None) or "")
                ran_on = "npu" if "qnn" in backend.lower() else ""
                ops.append(Op(name, took, "us", ran_on=ran_on, graph=str(block.name)))
    if not found and not ops:
        raise ProfileError("the etdump has no events")
    return Profile("etdump", Metrics.of(found), tuple(ops), runner="executorch")


def _numbers(values: Iterable[object]) -> list[float]:
    return [one for one in map(finite, values) if one is not None]
