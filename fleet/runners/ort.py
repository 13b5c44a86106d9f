"""The runner `ort`: an ONNX model in ONNX Runtime's QNN provider, started by a Python script.

The packages are those that match the QAIRT of the release. Nothing runs on the CPU silently: the
fallback is switched off, and a model that needs it fails. `accelerator: cpu` runs the whole model
on the CPU, and the records are marked `cpu`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, field, structs

from fleet.bundles.ort import models_of
from fleet.config.values import Before, Pattern
from fleet.device.texts import path_of
from fleet.model.errors import InputError, RunnerError
from fleet.model.files import FileRef, file_ref
from fleet.model.playbook import RunSpec
from fleet.model.record import Measure, Metrics, Op
from fleet.profiles.formats import qnn
from fleet.profiles.formats.base import RATE, RATE_UNIT, percentile
from fleet.runners.base import Ended, Ends, Kit, Layout, Outcome, Start
from fleet.runners.options import TIMED_OUT, Options, has_program, parsed
from fleet.runners.scripted import OUTCOME, Scripted, finished, script_argv, token_times
from fleet.runtimes.packages import SITE
from fleet.runtimes.releases import release

SCRIPT = "run/fleet_ort.py"
GENERATE, WORKER = "run/fleet_generate.py", "run/fleet/device/npu/fleet_ort.py"
PROFILE, OUTPUTS = "profile.csv", "outputs.npz"
PACKAGE_FOLDER = f"{SITE}/onnxruntime_qnn"  # the provider finds QAIRT next to itself
# The chip for which the HTP emulator compiles: QCS9075, as in lab boards. Without one it ends with
# 1002, QNN_COMMON_ERROR_MEM_ALLOC (onnxruntime-qnn 2.7.0, measured).
EMULATED_SOC = "77"
_STATUS = {
    10: "failed: the inputs in `run: options:` do not match the inputs of the model",
    11: "failed: the NPU session could not be opened",
    12: "failed: the inference failed",
}


def _number(value: object) -> object:
    """Return a text such as 1e-3 as a number; YAML 1.1 reads it as text, without a point."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


Number = Annotated[float, Before(_number)]
PerfMode = Annotated[
    str, Pattern(r"[a-z_]{1,40}", "performance mode", "write it as the HTP names it, like burst")
]


class OrtOptions(Options, frozen=True):
    """The options. `inputs` and `reference` map a tensor to a .npy file of the bundle.

    An input without a file is random. `tolerance` is the largest difference from a reference that
    is accepted, in the unit of the output. `dimensions` are the values of free dimensions.
    `provider` and `session` are options of the QNN provider and of the session, with the names of
    ONNX Runtime.

    With `decoder` and `decoder_with_past`, `model` is the encoder before them. A run is then one
    greedy generation of at most `run.max_tokens`, from `start_token` to `end_token`; its output is
    `tokens`. `tokens` does the same with a single decoder, `model`; its prompt are these token ids.

    `accelerator` cpu runs the whole model on the CPU, for comparison; the runs are marked.
    """

    accelerator: Literal["npu", "cpu"] = "npu"
    model: str | None = None
    decoder: str | None = None
    decoder_with_past: str | None = None
    tokens: list[Annotated[int, Meta(ge=0)]] | None = None
    start_token: Annotated[int, Meta(ge=0)] = 0
    end_token: Annotated[int, Meta(ge=0)] = 1
    inputs: dict[str, str] = field(default_factory=dict)
    reference: dict[str, str] = field(default_factory=dict)
    tolerance: Annotated[Number, Meta(ge=0)] | None = None
    dimensions: dict[str, int] = field(default_factory=dict)
    iterations: Annotated[int, Meta(ge=1, le=100_000)] = 10
    warmups: Annotated[int, Meta(ge=0, le=10_000)] = 1
    profiling: Literal["off", "basic", "detailed", "optrace"] = "basic"
    perf_mode: PerfMode = "burst"
    provider: dict[str, str] = field(default_factory=dict)
    session: dict[str, str] = field(default_factory=dict)
    seed: int = 0
    keep_outputs: bool = False
    log: Annotated[int, Meta(ge=0, le=4)] = 2


_PASSED_ON = (  # options with the same name in the script; the id of a release includes them
    *("inputs", "reference", "dimensions", "iterations", "warmups", "profiling", "session", "seed"),
    *("log", "accelerator"),
)


class Sampled(Scripted):
    """A base class of runners of fleet_ort.py, or of a script based on it, which also run
    samples.
    """

    def ends(self, _kit: Kit) -> tuple[Ends, Ends] | None:
        """Return the inputs and outputs of the model, if they are known here."""
        return None

    def run_samples(self, kit: Kit, archive: bytes) -> Start:
        """Return the start that runs each sample once in one session."""
        files = ("--samples", "{work}/prompt.txt", "--outputs", "{work}/" + OUTPUTS)
        start = self._start(kit, kit.run.timeout, *files)
        return replace(start, prompt=archive, collect=(OUTCOME, OUTPUTS))

    def sample_outputs(self, start: Start, ended: Ended) -> tuple[bytes, str]:
        """Return the outputs, and the problem of the run."""
        archive = ended.files.get(OUTPUTS, b"")
        problem = ""
        if ended.status:
            problem = next(iter(read_outcome(start, ended, None).problems), "failed")
        return archive, problem


class OrtRunner(Sampled):
    """The runner of ONNX models, with or without context binaries."""

    name = "ort"
    kinds = ("ort",)
    options = OrtOptions
    default_for = ("ort",)
    formats = ("ort", "scripted", "qnn")
    runtime: str | None = "ort"
    layout = Layout(lib=PACKAGE_FOLDER, dsp=PACKAGE_FOLDER)
    windows = layout

    def check(self, run: RunSpec) -> None:
        """Check the options; the fallback to the CPU must stay off."""
        options = parsed(OrtOptions, run.options, self.name)
        has_program(run, self.name, "its own program", "`program:` and `libraries:`")
        if (options.decoder is None) is not (options.decoder_with_past is None):
            raise InputError(
                "`run: options:` of the playbook names only one of `decoder:` and "
                "`decoder_with_past:`; to generate text, both models are needed",
                hint="name the other model too, under `run: options:`",
            )
        if options.tokens is not None and (options.decoder is not None or not options.tokens):
            raise InputError(
                "`tokens:` under `run: options:` of the playbook is the prompt of a decoder that "
                "runs alone: it must not be empty, and `decoder:` must not be there",
                hint="remove `tokens:` or `decoder:`",
            )
        if "session.disable_cpu_ep_fallback" in options.session:
            raise InputError(
                "the playbook sets session.disable_cpu_ep_fallback under `run: options: "
                "session:`, but fleet sets this option itself so that no operation silently "
                "runs on the CPU",
                hint="remove session.disable_cpu_ep_fallback from the playbook",
            )
        for key in ("profiling_level", "profiling_file_path", "backend_path", "backend_type"):
            if key in options.provider:
                use = "`profiling:`" if key.startswith("prof") else "`accelerator: cpu` or `npu`"
                raise InputError(
                    f"the playbook sets {key} under `run: options: provider:`, but fleet sets "
                    "this option itself",
                    hint=f"remove {key} from the playbook, and use {use} under `run: options:`",
                )

    def files(self, kit: Kit) -> tuple[FileRef, ...]:
        """Return the scripts, and the packages for the Python of the device."""
        scripts = {"fleet_ort.py": SCRIPT}
        if _generates(parsed(OrtOptions, kit.options, self.name)):
            scripts = {"fleet_generate.py": GENERATE, "fleet_ort.py": WORKER}
        ours = (file_ref(path_of(name), to, executable=True) for name, to in scripts.items())
        site = kit.site(requirements(kit.build_id)) if kit.site is not None else ()
        return (*ours, *site)

    def _start(self, kit: Kit, timeout: float, *more: str) -> Start:
        options = parsed(OrtOptions, kit.options, self.name)
        cpu = options.accelerator == "cpu"
        spec: dict[str, Any] = {
            "model": _model(kit, options.model, "model"),
            **_generation(kit, options),
            **{name: getattr(options, name) for name in _PASSED_ON},
            "provider": {
                "backend_path": kit.backends[0],
                **({"htp_performance_mode": options.perf_mode} if kit.dsp else {}),
            },
        }
        if kit.emulator and not _compiled(kit, spec):
            spec["provider"]["soc_model"] = EMULATED_SOC
        spec["provider"].update(options.provider)
        if cpu:
            _for_cpu(kit, spec)
        in_bundle(kit, options.inputs, options.reference)
        keep = ("--keep", "{work}/outputs") if options.keep_outputs and not more else ()
        script = GENERATE if _generates(options) else SCRIPT
        argv = script_argv(script, timeout, "--profile", "{work}/" + PROFILE, *keep, *more)
        collect = (OUTCOME, PROFILE, *(("outputs/*",) if keep else ()))
        marks = ("cpu",) if cpu else ()
        return Start(argv, "bundle", collect, timeout, config=json.dumps(spec), marks=marks)

    def ends(self, kit: Kit) -> tuple[Ends, Ends] | None:
        """Return the inputs and outputs that the model names."""
        options = parsed(OrtOptions, kit.options, self.name)
        model = kit.bundle.config["models"][_model(kit, options.model, "model")]
        return model["inputs"], model["outputs"]

    def run_samples(self, kit: Kit, archive: bytes) -> Start:
        """Return the start that runs each sample once in one session. Raises InputError."""
        if parsed(OrtOptions, kit.options, self.name).decoder:
            raise InputError(
                "`verify:` does not run the samples of a model with a decoder",
                hint="remove `verify:` from the playbook, and use `reference:` of the runner",
            )
        return super().run_samples(kit, archive)

    def network(self, kit: Kit) -> Path:
        """Return the ONNX file that runs. Raises InputError for a compiled model."""
        options = parsed(OrtOptions, kit.options, self.name)
        name = _model(kit, options.model, "model")
        if models_of(kit.bundle)[name].get("nodes"):
            raise InputError(
                f"{name} was compiled for the NPU, so the tensors between its nodes cannot be seen",
                hint="deploy the ONNX model from which it was compiled, and name it in the "
                "playbook under `run: options: model:`",
            )
        return next(file.source for file in kit.bundle.files if file.name == name)

    def run_nodes(self, kit: Kit, archive: bytes, tensors: Sequence[Sequence[str]]) -> Start:
        """Return the start that runs the samples once for each group of tensors.

        The tensors of the group are then outputs of the model.
        """
        start = self.run_samples(kit, archive)
        added = {"added": [list(group) for group in tensors]}
        return replace(start, config=json.dumps(json.loads(start.config) | added))

    def read(self, start: Start, kit: Kit, ended: Ended) -> Outcome:
        """Return the times of session and runs, the provider's profile, and the distances."""
        options = parsed(OrtOptions, kit.options, self.name)
        outcome = read_outcome(start, ended, options.tolerance)
        finish, problems, marks = finished(_outcome_data(ended), kit)
        problems = [*outcome.problems, *problems]
        return replace(outcome, finish=finish, problems=tuple(problems), marks=marks)


def _outcome_data(ended: Ended) -> dict[str, Any]:
    try:
        data = json.loads(ended.files.get(OUTCOME, b"{}"))
    except ValueError:
        data = {}
    return data if isinstance(data, dict) else {}


def read_outcome(start: Start, ended: Ended, tolerance: float | None) -> Outcome:
    """Return the outcome that fleet_ort.py wrote, and the provider's profile if there is one."""
    raw = {name: data for name, data in ended.files.items() if name != OUTCOME}
    problems: list[str] = []
    result = _outcome_data(ended)
    if ended.status in TIMED_OUT:
        problems.append(f"cut: the program did not end within {start.timeout:g} s")
    elif ended.status:
        word = _STATUS.get(ended.status, f"failed: exit status {ended.status}")
        problems.append(f"{word}: {str(result.get('error', 'no reason given'))[:500]}")
    numbers = _times(result)
    if not problems and "run_ms" not in numbers:
        problems.append("unreadable: the result file of the run contains no times")
    near, wrong = _distances(result, tolerance)
    problems += wrong
    ops, source = tuple[Op, ...](), dict[str, Measure]()
    if PROFILE in raw:
        try:
            profile = qnn.read(raw[PROFILE].decode("utf-8", "replace"))
            numbers |= profile.metrics.others
            ops, source = profile.ops, dict(profile.metrics.source)
        except RunnerError as error:
            problems.append(f"unreadable: {error.message}")
    metrics = structs.replace(Metrics.of(numbers | near), source=source)
    return Outcome(metrics, "", None, tuple(problems), raw, ops)


def requirements(build_id: str) -> tuple[str, ...]:
    """Return the packages that match a QAIRT. Raises InputError if no package does."""
    row = release(build_id)
    if row is None:
        raise InputError(
            f"fleet knows no onnxruntime-qnn package that contains QAIRT {build_id}",
            hint='set a newer QAIRT in the playbook, for example `runtime: "2.51.0"`; newer '
            "versions also run context binaries of older versions",
        )
    pair = f"onnxruntime{row['onnxruntime']}"
    return (f"onnxruntime-qnn=={row['wheel']}", pair, "numpy")


def _model(kit: Kit, name: str | None, key: str) -> str:
    names = sorted(models_of(kit.bundle))
    if name is not None and name not in names:
        raise InputError(
            f"`{key}` under `run: options:` is {name}, but the bundle has no model with this name",
            hint=f"set `run: options: {key}:` in the playbook to one of: " + ", ".join(names),
        )
    if name is None and len(names) > 1:
        raise InputError(
            "the bundle has several models, but the playbook does not say which model to run: "
            f"{', '.join(names)}",
            hint=f"choose one in the playbook, under `run: options:`: `model: {names[0]}`"
            + (
                "; or set `runner: genai` to run the whole bundle"
                if kit.bundle.config.get("genai")
                else ""
            ),
        )
    return name or names[0]


def _compiled(kit: Kit, spec: Mapping[str, Any]) -> list[str]:
    """Return the keys of the models of a run that are compiled for the NPU."""
    models = models_of(kit.bundle)
    keys = ("model", "decoder", "decoder_with_past")
    return [key for key in keys if models.get(str(spec.get(key)), {}).get("nodes")]


def _for_cpu(kit: Kit, spec: Mapping[str, Any]) -> None:
    """Raise InputError for a model that was compiled for the NPU."""
    for key in _compiled(kit, spec):
        raise InputError(
            f"{spec[key]} is compiled for the NPU and cannot run on a CPU, but the playbook "
            "says `accelerator: cpu`",
            hint="copy the original ONNX model into the bundle, and name it in the playbook, "
            f"under `run: options:`: `{key}: FILE.onnx`",
        )


def _generation(kit: Kit, options: OrtOptions) -> dict[str, Any]:
    end = {"end_token": options.end_token, "max_tokens": kit.run.max_tokens}
    if options.decoder is None:
        return {} if options.tokens is None else {"tokens": options.tokens, **end}
    parts = {"decoder": options.decoder, "decoder_with_past": options.decoder_with_past}
    return {
        **{key: _model(kit, name, key) for key, name in parts.items()},
        "start_token": options.start_token,
        **end,
    }


def _generates(options: OrtOptions) -> bool:
    """Return True if a run is a generation, which has its own script."""
    return options.decoder is not None or options.tokens is not None


def in_bundle(kit: Kit, inputs: Mapping[str, str], reference: Mapping[str, str]) -> None:
    """Raise InputError for a file that is missing from the bundle."""
    have = {file.name for file in kit.bundle.files}
    for key, table in (("inputs", inputs), ("reference", reference)):
        for tensor, name in table.items():
            if name not in have:
                raise InputError(
                    f"`{key}` under `run: options:` uses the file {name} for {tensor}, but the "
                    "bundle does not contain this file",
                    hint="copy the .npy file into the bundle folder, or correct its name in the "
                    "playbook",
                )


def _times(data: Mapping[str, Any]) -> dict[str, Measure]:
    measured = token_times(data)
    keys = (("init_ms", "session_ms"), ("run_ms", "run_ms"), ("encoder_ms", "encoder_ms"))
    for name, key in keys:
        if _is_number(data.get(key)):
            measured[name] = Measure(float(data[key]), "ms")
    runs = data.get("runs_ms")
    times = [float(run) for run in runs if _is_number(run)] if isinstance(runs, list) else []
    if times:
        measured["run_min_ms"] = Measure(min(times), "ms")
        measured["run_max_ms"] = Measure(max(times), "ms")
        measured["inferences"] = Measure(len(times))
        if len(times) > 1:
            measured["run_p90_ms"] = Measure(percentile(times, 90), "ms")
        if sum(times) > 0:
            measured[RATE] = Measure(1000 * len(times) / sum(times), RATE_UNIT)
    return measured


def _distances(
    data: Mapping[str, Any], tolerance: float | None
) -> tuple[dict[str, Measure], list[str]]:
    measured: dict[str, Measure] = {}
    wrong: list[str] = []
    outputs = data.get("outputs")
    for name, distance in outputs.items() if isinstance(outputs, dict) else ():
        if not isinstance(distance, dict) or "max_abs" not in distance:
            continue
        far = distance["max_abs"]
        for key in ("max_abs", "cosine"):
            if _is_number(distance.get(key)):
                measured[f"{name}_{key}"] = Measure(float(distance[key]))
        if not _is_number(far):
            wrong.append(f"wrong: the output {name} contains values that are not numbers (NaN)")
        elif tolerance is not None and float(far) > tolerance:
            wrong.append(
                f"wrong: the output {name} differs by {far:g} from its reference, but the "
                f"tolerance is {tolerance:g}"
            )
    return measured, wrong


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
