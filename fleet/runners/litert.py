"""Runner `litert`: a .tflite in LiteRT, on the NPU or, where that is said, on the CPU.

What runs where stands in the file: a part for the NPU was compiled before and is one operation of
its own. So nothing falls back in silence: the operations that stay on the CPU are counted before
anything is sent, and more than the playbook allows are refused.
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
    """`off_npu`: so many operations may stay on the CPU. `source`: the model before it was
    compiled, of which they are a share. The others as of runner ort.
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
    """Models of LiteRT (TensorFlow Lite)."""

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
        """The CPU needs no QAIRT."""
        found = copy.copy(self)
        if parsed(LitertOptions, run.options, self.name).accelerator == "cpu":
            found.runtime = None
        return found

    def check(self, run: RunSpec) -> None:
        """The options; the NPU needs LiteRT's dispatch library, which is built by the user."""
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
        """Our scripts, the packages for the Python of the device, the user's libraries."""
        site = kit.site(PACKAGES) if kit.site is not None else ()
        scripts = (("fleet_litert.py", SCRIPT), ("fleet_ort.py", WORKER))
        ours = tuple(file_ref(path_of(name), place) for name, place in scripts)
        return (*ours, *site, *own_files(kit.run, self.layout))

    def _start(self, kit: Kit, timeout: float, *more: str) -> Start:
        options = parsed(LitertOptions, kit.options, self.name)
        in_bundle(kit, options.inputs, options.reference)
        model, found, _ = _counted(kit, options)
        spec = {
            "model": model,
            "partly": options.accelerator == "npu" and found.others > 0,
            **_passed_on(options),
        }
        argv = script_argv(SCRIPT, timeout, *more)
        marks = ("cpu",) if options.accelerator == "cpu" else ()
        config = json.dumps({**spec, "dimensions": {}})
        return Start(argv, "bundle", (OUTCOME,), timeout, config=config, marks=marks)

    def read(self, start: Start, kit: Kit, ended: Ended) -> Outcome:
        """Times of loading and runs, distances, and the operations that stay on the CPU."""
        options = parsed(LitertOptions, kit.options, self.name)
        _, found, whole = _counted(kit, options)
        off = found.compiled + found.others if options.accelerator == "cpu" else found.others
        more = {"ops_off_npu": Measure(off), "off_npu_share": Measure(off / whole)}
        outcome = read_outcome(start, ended, options.tolerance)
        metrics = structs.replace(outcome.metrics, others={**outcome.metrics.others, **more})
        return replace(outcome, metrics=metrics)


def _counted(kit: Kit, options: LitertOptions) -> tuple[str, Operations, int]:
    """(model, its operations, those before it was compiled). Raises InputError."""
    model = named(kit.bundle, options.model, ("*.tflite",), "model", "model")
    found = operations(_path(kit, model))
    if options.accelerator == "cpu":
        if found.compiled:
            raise InputError(
                f"{model} contains {found.compiled} part(s) that are compiled for an NPU and "
                "cannot run on a CPU",
                hint="copy the original model (not compiled for the NPU) into the bundle, and "
                "name it in the playbook, under `run: options:`: `model: FILE.tflite`",
            )
        return model, found, max(found.others, 1)
    if found.others > options.off_npu or not found.compiled:
        raise InputError(
            f"{found.others} of the {found.others + found.compiled} operations of {model} would "
            "run on the CPU, not on the NPU"
            + (
                f", but the playbook allows only {options.off_npu} (off_npu)"
                if found.compiled
                else ": the model is not compiled for an NPU"
            ),
            hint="compile the whole model for the NPU, or allow these operations in the playbook, "
            f"under `run: options:`: `off_npu: {found.others}`"
            if found.compiled
            else "compile it ahead of time for the chip (apply_plugin_main of ai-edge-litert); to "
            "measure the CPU, write in the playbook, under `run: options:`: `accelerator: cpu`",
        )
    if not found.others:
        return model, found, found.compiled
    if options.source is None:
        raise InputError(
            f"fleet cannot tell which part of {model} runs on the CPU without the original "
            "model (not compiled for the NPU)",
            hint="copy the original model into the bundle, and name it in the playbook, under "
            "`run: options:`: `source: FILE.tflite`",
        )
    source = named(kit.bundle, options.source, (), "original model", "source")
    return model, found, max(operations(_path(kit, source)).others, 1)


def _path(kit: Kit, name: str) -> Path:
    return next(item.source for item in kit.bundle.files if item.name == name)
