"""Runner `genai`: a folder of onnxruntime-genai as a whole, a prompt in and text out.

Its model is loaded by onnxruntime-genai with the QNN provider that `genai_config.json` names; a
folder that names none would run on the CPU and is a CPU fallback. Where the decoder is one model,
the session is opened with the CPU switched off, so that it opens only if QNN took every node: what
genai itself says of its device is CPU on QNN too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from fleet.bundles.ort import providers_in, providers_of
from fleet.device.texts import path_of
from fleet.model.errors import InputError
from fleet.model.files import FileRef, file_ref
from fleet.model.playbook import RunSpec
from fleet.model.record import Measure, Metrics
from fleet.runners.base import Ended, Kit, Layout, Outcome, Start
from fleet.runners.options import TIMED_OUT, Options, parsed
from fleet.runners.ort import PACKAGE_FOLDER, requirements
from fleet.runners.scripted import OUTCOME, Scripted, script_argv

# The one whose interface is used here; it needs onnxruntime 1.31. Wheels for x86_64, aarch64 and
# win_arm64, CPython 3.11 and later.
PACKAGE = "onnxruntime-genai==0.18.0"
SCRIPT = "run/fleet_genai.py"
_STATUS = {
    10: "cut: the prompt is longer than the context of the model",
    11: "failed: the NPU session could not be opened",
    12: "failed: the generation of tokens failed",
}


class GenaiOptions(Options):
    """None: what the search needs stands in genai_config.json."""


class GenaiRunner(Scripted):
    """Folders of onnxruntime-genai."""

    name = "genai"
    kinds = ("ort",)
    runtime: str | None = "ort"
    layout = Layout(lib=PACKAGE_FOLDER, dsp=PACKAGE_FOLDER)
    windows = layout

    def check(self, run: RunSpec) -> None:
        """No options; the program is ours."""
        parsed(GenaiOptions, run.options, self.name)
        if run.program is not None or run.libraries:
            raise InputError(
                "the runner genai has a program of its own; the playbook names another one",
                hint="remove `program:` and `libraries:` from `run:` in the playbook",
            )

    def files(self, kit: Kit) -> tuple[FileRef, ...]:
        """Our script, and the packages for the Python of the device."""
        source = path_of("fleet_genai.py")
        wanted = (*requirements(kit.build_id), PACKAGE)
        site = kit.site(wanted) if kit.site is not None else ()
        return (file_ref(source, SCRIPT, executable=True), *site)

    def _start(self, kit: Kit, timeout: float, *more: str) -> Start:
        genai = kit.bundle.config.get("genai")
        if not isinstance(genai, Mapping):
            raise InputError(
                f"the bundle {kit.bundle.name} has no genai_config.json",
                hint="set `runner: ort` in the playbook (it runs single ONNX models)",
            )
        model = genai.get("model")
        length = model.get("context_length") if isinstance(model, Mapping) else None
        spec = {
            "prompt": kit.run.prompt,
            "max_tokens": kit.run.max_tokens,
            "context": length if isinstance(length, int) else None,
            "npu_alone": isinstance(model, Mapping) and _npu_alone(model),
        }
        argv = script_argv(SCRIPT, timeout, *more)
        return Start(argv, "bundle", (OUTCOME,), timeout, kit.run.prompt.encode(), json.dumps(spec))

    def read(self, start: Start, kit: Kit, ended: Ended) -> Outcome:
        """Times as the loop saw them: TTFT is the prompt's pass with the first token."""
        try:
            said = json.loads(ended.files.get(OUTCOME, b"{}"))
        except ValueError:
            said = {}
        said = said if isinstance(said, dict) else {}
        problems: list[str] = []
        if "qnn" not in providers_of(kit.bundle):
            problems.append("cpu-fallback: genai_config.json names no QNN provider")
        if ended.status in TIMED_OUT:
            problems.append(f"cut: the program did not end within {start.timeout:g} s")
        elif ended.status:
            word = _STATUS.get(ended.status, f"failed: exit status {ended.status}")
            problems.append(f"{word}: {str(said.get('error', 'no reason given'))[:500]}")
        found = _metrics(said)
        if not problems and "ttft_ms" not in found:
            problems.append("unreadable: the result file contains no times")
        finish = said.get("finish")
        finish = next((ending for ending in ("eos", "token-limit") if ending == finish), None)
        if said.get("cut_by_context") is True:
            problems.append("cut: the output filled the context of the model")
        elif finish == "token-limit" and not kit.run.token_limit_counts:
            problems.append(f"cut: the output reached the token limit of {kit.run.max_tokens}")
        text = said.get("text")
        metrics = Metrics.of(found)
        return Outcome(
            metrics,
            text if isinstance(text, str) else "",
            finish,
            tuple(problems),
            dict(ended.files),
        )


def _npu_alone(model: Mapping[str, Any]) -> bool | list[str]:
    """True for a decoder of one model; of a pipeline the parts that name QNN, the others are for
    the CPU by design.
    """
    decoder = model.get("decoder")
    pipeline = decoder.get("pipeline") if isinstance(decoder, Mapping) else None
    if not isinstance(pipeline, list) or not pipeline:
        return True
    parts = {
        str(name): part
        for stage in pipeline
        if isinstance(stage, dict)
        for name, part in stage.items()
    }
    return [name for name, part in parts.items() if "qnn" in providers_in(part)]


def _metrics(said: Mapping[str, Any]) -> dict[str, Measure]:
    found: dict[str, Measure] = {}
    if _number(said.get("init_seconds")):
        found["init_ms"] = Measure(1000 * said["init_seconds"], "ms")
    times = said.get("token_seconds")
    times = [time for time in times if _number(time)] if isinstance(times, list) else []
    asked = said["prompt_tokens"] if _number(said.get("prompt_tokens")) else 0
    if not times:
        return found
    found["ttft_ms"] = Measure(1000 * times[0], "ms")
    found["generated_tokens"] = Measure(len(times))
    if asked > 0:
        found["prompt_tokens"] = Measure(asked)
        if times[0] > 0:
            found["prompt_tps"] = Measure(asked / times[0], "tok/s")
    if len(times) > 1 and times[-1] > times[0]:
        found["decode_ms"] = Measure(1000 * (times[-1] - times[0]), "ms")
        found["decode_tps"] = Measure((len(times) - 1) / (times[-1] - times[0]), "tok/s")
    return found


def _number(value: object) -> bool:
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    return fits and math.isfinite(value) and 0 <= value < 1e9  # type: ignore[arg-type,operator]
