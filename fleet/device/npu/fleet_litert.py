"""Runs one .tflite with LiteRT's CompiledModel, on the NPU or, if requested, on the CPU.

Options, files and exit status are those of fleet_ort.py, which does the work. If the accelerators
do not include the CPU, LiteRT refuses a model with any operation for the CPU (`Some ops are not
accelerated`, measured with 2.3.0). `partly` leaves operations that the compiler did not take on the
CPU. The part for the NPU is one operation, DISPATCH_OP, for which the CPU has no kernel.
"""

import os
import sys
import time
from typing import Any, Dict, List, Tuple

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from fleet.device.npu.fleet_ort import Model, run  # noqa: E402


class _Tensor:
    """An input or output, described like one of onnxruntime."""

    def __init__(self, name: str, type_: str, shape: "List[int]") -> None:
        self.name, self.shape, self.type = name, shape, "tensor(%s)" % type_


class _Session:
    """The first signature of a compiled model, with the interface of an InferenceSession."""

    def __init__(self, np: Any, model: Any) -> None:
        self.model, self.signature = model, next(iter(model.get_signature_list()))
        describe, made = model.get_input_tensor_details, model.create_input_buffer_by_name
        self.inputs, self.feeds = self._tensors(describe, made)
        describe, made = model.get_output_tensor_details, model.create_output_buffer_by_name
        self.outputs, self.results = self._tensors(describe, made)
        self.reads = [  # before the measurement starts
            (self.results[tensor.name], int(np.prod(tensor.shape)), np.dtype(tensor.type[7:-1]))
            for tensor in self.outputs
        ]

    def _tensors(self, describe: Any, made: Any) -> "Tuple[List[_Tensor], Dict[str, Any]]":
        details = describe(self.signature)
        tensors = [
            _Tensor(name, detail["dtype"], detail["shape"]) for name, detail in details.items()
        ]
        return tensors, {name: made(self.signature, name) for name in details}

    def get_providers(self) -> "List[str]":
        """Return one text that says if LiteRT (or XNNPACK) accelerates every operation."""
        return ["LiteRT, all accelerated" if self.model.is_fully_accelerated() else "LiteRT"]

    def get_inputs(self) -> "List[_Tensor]":
        """Return the inputs of the signature."""
        return self.inputs

    def get_outputs(self) -> "List[_Tensor]":
        """Return the outputs of the signature."""
        return self.outputs

    def run(self, _: None, feed: "Dict[str, Any]") -> "List[Any]":
        """Run one inference and return the outputs."""
        for name, value in feed.items():
            self.feeds[name].write(value)
        self.model.run_by_name(self.signature, self.feeds, self.results)
        read = [buffer.read(size, kind) for buffer, size, kind in self.reads]
        return [value.reshape(tensor.shape) for value, tensor in zip(read, self.outputs)]


class LitertModel(Model):
    """A .tflite model with its inputs and its results."""

    def __init__(self, site: str, spec: "Dict[str, Any]") -> None:
        self.out = os.dup(1)
        os.dup2(2, 1)
        sys.path.insert(0, site)
        import ai_edge_litert
        import numpy as np

        self.np, self.package, self.spec = np, os.path.dirname(ai_edge_litert.__file__), spec
        self.session: Any = None

    def versions(self) -> "Dict[str, str]":
        """Return the versions that were really loaded."""
        python = "%d.%d.%d" % sys.version_info[:3]
        return {"numpy": self.np.__version__, "python": python}

    def open(self, profile: "str | None") -> "Tuple[float, str]":  # noqa: ARG002
        """Load the model; return (seconds, NPU or CPU)."""
        from ai_edge_litert.compiled_model import (
            CompiledModel,
            CpuOptions,
            Environment,
            EnvironmentOptions,
            HardwareAccelerator,
            Options,
        )

        npu = self.spec["accelerator"] == "npu"
        kinds = HardwareAccelerator.NPU if npu else HardwareAccelerator.CPU
        if self.spec["partly"]:
            kinds |= HardwareAccelerator.CPU
        places = {"dispatch_library_path": os.path.join(HERE, os.pardir, "lib")}
        environment = Environment.create(
            options=EnvironmentOptions(runtime_path=self.package, **(places if npu else {}))
        )
        threads = CpuOptions(num_threads=self.spec["threads"])
        options = Options(hardware_accelerators=kinds, cpu_options=threads)
        began = time.perf_counter()
        model = CompiledModel.from_file(
            self.spec["model"], environment=environment, options=options
        )
        self.session = _Session(self.np, model)
        return time.perf_counter() - began, self.spec["accelerator"].upper()


if __name__ == "__main__":
    run(lambda _: LitertModel)
