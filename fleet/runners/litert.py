"""The runner `litert`: a .tflite model in LiteRT, on the NPU or, if selected, on the CPU.

The file itself decides what runs where: a part for the NPU was compiled in advance and is one
operation of its own. Nothing falls back silently. The operations that stay on the CPU are counted
before anything is sent. If there are more than the playbook allows, the run is refused.
"""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, field, structs

from fleet.bundles.tflite import Operations, operations
from fleet.device.texts import path_of
from fleet.model.bundle import Bundle
from fleet.model.errors import InputError
from fleet.model.files import FileRef, file_ref
from fleet.model.playbook import RunSpec
from fleet.model.record import Measure
from fleet.runners.base import Ended, Kit, Layout, Outcome, Start
from fleet.runners.options import Options, has_program, named, own_files, parsed
from fleet.runners.ort import Number, Sampled, in_bundle, read_outcome
from fleet.runners.scripted import OUTCOME, script_argv

# CPython 3.10 to 3.14, x86_64 and aarch64; no wheel has a dispatch library for Qualcomm.
PACKAGES = ("ai-edge-litert==2.3.0", "ml_dtypes", "numpy")
DISPATCH = "libLiteRtDispatch_Qualcomm.so"
SCRIPT, WORKER = "run/fleet_litert.py", "run/fleet/device/npu/fleet_ort.py"


class LitertOptions(Options, frozen=True):
    """The options. `off_npu` is the number of operations that may stay on the CPU.

    `source` is the model before compilation; it is used to compute the share of those operations.
    The other options are the same as for the runner ort.
    """

    model: str | None = None
    source: str | None = None
    accelerator: Literal["npu", "cpu"] = "npu"
    off_npu: Annotated[int, Meta(ge=0)] = 0
    threads: Annotated[int, Meta(ge=1, le=64)] = 1
    inputs: dict[str, str] = field(default_factory=dict)
    reference: dict[str, str] = field(default_factory=dict)
    tolerance: Annotated[Number, Meta(ge=0)] | None = None
    iterations: Annotated[int, Meta(ge=1, le=100_000)] = 10
    warmups: Annotated[int, Meta(ge=0, le=10_000)] = 1
    seed: int = 0


def _passed_on(options: LitertOptions) -> dict[str, Any]:
    """Return the options that the script has under the same name."""
    own = {"model", "source", "off_npu", "tolerance"}
    return {name: value for name, value in structs.asdict(options).items() if name not in own}


class LitertRunner(Sampled):
    """The runner of models of LiteRT (TensorFlow Lite)."""

    name = "litert"
    kinds = ("litert",)
    options = LitertOptions
    default_for = ("litert",)
    formats = ("ort",)
    runtime: str | None = "litert"
    layout = Layout()

    def uses_npu(self, _bundle: Bundle, run: RunSpec) -> bool:
        """Return False for the CPU."""
        return parsed(LitertOptions, run.options, self.name).accelerator != "cpu"

    def fitted(self, run: RunSpec) -> LitertRunner:
        """Return the runner without QAIRT for the CPU, which does not need it."""
        runner = copy.copy(self)
        if parsed(LitertOptions, run.options, self.name).accelerator == "cpu":
            runner.runtime = None
        return runner

    def check(self, run: RunSpec) -> None:
        """Check the options, and that the NPU has LiteRT's dispatch library.

        The user builds this library.
        """
        options = parsed(LitertOptions, run.options, self.name)
        has_program(run, self.name, "its own program", "`program:`")
        has = any(path.name == DISPATCH for path in run.libraries)
        if options.accelerator == "npu" and not has:
            raise InputError(
                f"the runner litert needs the library {DISPATCH} to use the NPU, but the "
                "playbook does not name this library",
                hint=f"build {DISPATCH} from the sources of LiteRT 2.3.0 (no Python package has "
                "it); then write its path in the playbook, under `run:`: "
                f"`libraries: [PATH/{DISPATCH}]`",
            )

    def files(self, kit: Kit) -> tuple[FileRef, ...]:
        """Return the scripts, the packages for the Python of the device, and user libraries."""
        site = kit.site(PACKAGES) if kit.site is not None else ()
        scripts = (("fleet_litert.py", SCRIPT), ("fleet_ort.py", WORKER))
        ours = tuple(file_ref(path_of(name), place) for name, place in scripts)
        return (*ours, *site, *own_files(kit.run, self.layout))

    def _start(self, kit: Kit, timeout: float, *more: str) -> Start:
        options = parsed(LitertOptions, kit.options, self.name)
        in_bundle(kit, options.inputs, options.reference)
        model, counts, _ = _counted(kit, options)
        spec = {
            "model": model,
            "partly": options.accelerator == "npu" and counts.others > 0,
            **_passed_on(options),
        }
        argv = script_argv(SCRIPT, timeout, *more)
        marks = ("cpu",) if options.accelerator == "cpu" else ()
        config = json.dumps({**spec, "dimensions": {}})
        return Start(argv, "bundle", (OUTCOME,), timeout, config=config, marks=marks)

    def read(self, start: Start, kit: Kit, ended: Ended) -> Outcome:
        """Return the times of loading and runs, distances, and operations on the CPU."""
        options = parsed(LitertOptions, kit.options, self.name)
        _, counts, whole = _counted(kit, options)
        off = counts.compiled + counts.others if options.accelerator == "cpu" else counts.others
        more = {"ops_off_npu": Measure(off), "off_npu_share": Measure(off / whole)}
        outcome = read_outcome(start, ended, options.tolerance)
        metrics = structs.replace(outcome.metrics, others={**outcome.metrics.others, **more})
        return replace(outcome, metrics=metrics)


def _counted(kit: Kit, options: LitertOptions) -> tuple[str, Operations, int]:
    """Return (model, its operations, the number of operations before compilation).

    Raises InputError if the model cannot run as the playbook requires.
    """
    model = named(kit.bundle, options.model, ("*.tflite",), "model", "model")
    counts = operations(_path(kit, model))
    if options.accelerator == "cpu":
        if counts.compiled:
            raise InputError(
                f"{model} contains {counts.compiled} part(s) that are compiled for an NPU and "
                "cannot run on a CPU",
                hint="copy the original model (not compiled for the NPU) into the bundle, and "
                "name it in the playbook, under `run: options:`: `model: FILE.tflite`",
            )
        return model, counts, max(counts.others, 1)
    if counts.others > options.off_npu or not counts.compiled:
        raise InputError(
            f"{counts.others} of the {counts.others + counts.compiled} operations of {model} would "
            "run on the CPU, not on the NPU"
            + (
                f", but the playbook allows only {options.off_npu} (off_npu)"
                if counts.compiled
                else ": the model is not compiled for an NPU"
            ),
            hint="compile the whole model for the NPU, or allow these operations in the playbook, "
            f"under `run: options:`: `off_npu: {counts.others}`"
            if counts.compiled
            else "compile it ahead of time for the chip (apply_plugin_main of ai-edge-litert); to "
            "measure the CPU, write in the playbook, under `run: options:`: `accelerator: cpu`",
        )
    if not counts.others:
        return model, counts, counts.compiled
    if options.source is None:
        raise InputError(
            f"fleet cannot tell which part of {model} runs on the CPU without the original "
            "model (not compiled for the NPU)",
            hint="copy the original model into the bundle, and name it in the playbook, under "
            "`run: options:`: `source: FILE.tflite`",
        )
    source = named(kit.bundle, options.source, (), "original model", "source")
    return model, counts, max(operations(_path(kit, source)).others, 1)


def _path(kit: Kit, name: str) -> Path:
    return next(item.source for item in kit.bundle.files if item.name == name)
