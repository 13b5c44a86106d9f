"""Runs one ONNX model with ONNX Runtime's QNN provider and nothing on the CPU, or, if requested,
all of it on the CPU for comparison.

The packages come from a folder of the release, never from the system. The request is read from a
JSON file, and the outcome is written to another one. Exit status: 0 done, 10 bad request (unknown
input, file that does not fit), 11 no session (the first cause is on standard error), 12 a run
failed, 124 timeout.

Sources: the plug-in providers of onnxruntime (register_execution_provider_library,
add_provider_for_devices); session.disable_cpu_ep_fallback, without which a failed QNN set-up
silently runs on the CPU.
"""

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import threading
import time
from typing import Any, Callable, Dict, List, Sequence, Tuple, Type

TYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(bool)": "bool",
}
EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"
BAD, NO_SESSION, FAILED, LATE = 10, 11, 12, 124
NODES_TOLD, NODES_KEPT = 5, 20
CPU_NODES = "assigned to the default CPU EP"  # in the error of a session that needs the CPU
# The verbose log of onnxruntime-qnn 2.7.0 names each node that it does not take, with a reason, in
# two passes. The last pass counts.
_LAST_ROUND = "GetCapability pass"
_REFUSED = re.compile(r"Operator type: (\S+) Node name: (.*?) Node index: \d+\s+REASON : ([^\n]+)")


class BadRequestError(Exception):
    """The request does not fit the model."""


class Model:
    """A session on the NPU with its inputs and its results."""

    def __init__(self, site: str, spec: "Dict[str, Any]") -> None:
        # QNN's own log goes to descriptor 1; standard output is reserved.
        self.out = os.dup(1)
        os.dup2(2, 1)
        sys.path.insert(0, site)
        if hasattr(os, "add_dll_directory"):  # Windows: QAIRT is next to the provider
            os.add_dll_directory(os.path.abspath(os.path.join(site, "onnxruntime_qnn")))
        import numpy as np
        import onnxruntime
        import onnxruntime_qnn

        self.np, self.ort, self.qnn, self.spec = np, onnxruntime, onnxruntime_qnn, spec
        self.session: Any = None
        self.devices: "List[Any]" = []

    def versions(self) -> "Dict[str, str]":
        """Return the versions of the packages that were really loaded."""
        build = getattr(self.qnn, "build_and_package_info", None)
        return {
            "onnxruntime": self.ort.__version__,
            "onnxruntime_qnn": getattr(self.qnn, "__version__", ""),
            "qairt": getattr(build, "qnn_version", ""),
            "numpy": self.np.__version__,
            "python": "%d.%d.%d" % sys.version_info[:3],
        }

    def open(self, profile: "str | None") -> "Tuple[float, str]":
        """Create the session; return (seconds, kind of device)."""
        self.register()
        began = time.perf_counter()
        self.session = self.opened(self.spec["model"], profile)
        return time.perf_counter() - began, self.device

    @property
    def device(self) -> str:
        """The kind of device on which the sessions run."""
        return "CPU" if self.on_cpu else str(self.devices[0].device.type).rpartition(".")[2]

    @property
    def on_cpu(self) -> bool:
        """True if the request is for the CPU."""
        return bool(self.spec.get("accelerator") == "cpu")

    def register(self) -> None:
        """Register QNN and find its NPU (RuntimeError if none); do nothing for the CPU."""
        ort = self.ort
        ort.set_default_logger_severity(self.spec["log"])
        if self.on_cpu:
            return
        name = self.qnn.get_ep_name()
        ort.register_execution_provider_library(name, self.qnn.get_library_path())
        devices = [device for device in ort.get_ep_devices() if device.ep_name == name]
        # An NPU if there is one. On x86_64 the provider offers its emulator as a CPU.
        devices.sort(key=lambda device: str(device.device.type).upper().find("NPU") < 0)
        if not devices:
            raise RuntimeError("the QNN provider finds no NPU on this device")
        self.devices = devices

    def opened(
        self,
        model: str,
        profile: "str | None",
        log: "int | None" = None,
        added: "Sequence[str]" = (),
    ) -> Any:
        """Return a session with nothing on the CPU, or with everything on the CPU.

        `added` are tensors that become additional outputs.
        """
        ort = self.ort
        options = ort.SessionOptions()
        options.log_severity_level = self.spec["log"] if log is None else log
        if not self.on_cpu:
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        for key, value in self.spec["session"].items():
            options.add_session_config_entry(key, value)
        for name, number in self.spec["dimensions"].items():
            options.add_free_dimension_override_by_name(name, number)
        source: Any = model
        if added:  # a model in bytes does not find its external weight files
            folder = os.path.dirname(os.path.abspath(model))
            options.add_session_config_entry(EXTERNAL_FOLDER, folder)
            with open(model, "rb") as stream:
                source = stream.read() + outputs_of(added)
        if self.on_cpu:
            return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        given = dict(self.spec["provider"])
        if profile and self.spec["profiling"] != "off":
            given["profiling_level"] = self.spec["profiling"]
            given["profiling_file_path"] = profile
        options.add_provider_for_devices(self.devices[:1], given)
        # The class itself would try again on the CPU.
        return ort.InferenceSession(source, options, enable_fallback=0)

    def untaken(self) -> "List[Dict[str, str]]":
        """Return the nodes that QNN does not take, from the verbose log of a second attempt."""
        with tempfile.TemporaryFile() as log:
            kept = os.dup(2)
            os.dup2(log.fileno(), 2)
            try:
                for key in ("model", "decoder", "decoder_with_past"):
                    if self.spec.get(key):
                        self.opened(self.spec[key], None, 0)
            except Exception as error:  # the same error as in the first attempt
                sys.stderr.write("%s\n" % error)
            finally:
                os.dup2(kept, 2)
                os.close(kept)
            log.seek(0)
            text = log.read().decode("utf-8", "replace")
        return nodes_of(text)

    def feed(self) -> "Dict[str, Any]":
        """Return the inputs by name: from .npy files, else random by shape with a fixed seed."""
        rng = self.np.random.default_rng(self.spec["seed"])
        given, feed = dict(self.spec["inputs"]), {}
        for tensor in self.session.get_inputs():
            kind = TYPES.get(tensor.type) or tensor.type[len("tensor(") : -1]
            shape = [self._dimension(tensor.name, part) for part in tensor.shape]
            if tensor.name in given:
                feed[tensor.name] = self._loaded(tensor.name, given.pop(tensor.name), kind, shape)
            else:
                feed[tensor.name] = self._random(rng, kind, shape)
        if given:
            known = ", ".join(tensor.name for tensor in self.session.get_inputs())
            raise BadRequestError("no input %s; the model has %s" % (", ".join(given), known))
        return feed

    def _dimension(self, name: str, part: "int | str") -> int:
        if isinstance(part, int):
            return part
        if part not in self.spec["dimensions"]:
            raise BadRequestError("dimension %r of input %s needs a number" % (part, name))
        return int(self.spec["dimensions"][part])

    def _loaded(self, name: str, path: str, kind: str, shape: "List[int]") -> Any:
        try:
            value = self.np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise BadRequestError("input %s: %s: %s" % (name, path, error)) from error
        if str(value.dtype) != kind or list(value.shape) != shape:
            have = "%s %s" % (value.dtype, list(value.shape))
            raise BadRequestError(
                "the input %s is %s; the model needs %s %s" % (name, have, kind, shape)
            )
        return value

    def _random(self, rng: Any, kind: str, shape: "List[int]") -> Any:
        if kind.startswith("float"):
            return rng.random(shape, dtype="float32").astype(kind)
        if kind == "bool":
            return rng.integers(0, 2, shape).astype(bool)
        high = min(self.np.iinfo(kind).max, 2**16 - 1)
        # Indices (int32, int64) start small: every table has a first row.
        return rng.integers(0, 2 if kind in ("int32", "int64") else high, shape).astype(kind)

    def compared(self, outputs: "List[Any]") -> "Dict[str, Any]":
        """Return shape and range of each output, and its distance from the reference."""
        results = {}
        for tensor, value in zip(self.session.get_outputs(), outputs):
            result: "Dict[str, Any]" = {"shape": list(value.shape), "type": str(value.dtype)}
            path = self.spec["reference"].get(tensor.name)
            if path is not None:
                result.update(self._distance(tensor.name, value, path))
            results[tensor.name] = result
        unknown = sorted(set(self.spec["reference"]) - set(results))
        if unknown:
            raise BadRequestError(
                "no output %s; the model has %s" % (unknown[0], ", ".join(results))
            )
        return results

    def _distance(self, name: str, value: Any, path: str) -> "Dict[str, Any]":
        np = self.np
        try:
            wanted = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise BadRequestError("reference %s: %s: %s" % (name, path, error)) from error
        if wanted.shape != value.shape:
            shapes = (name, list(wanted.shape), list(value.shape))
            raise BadRequestError("the reference of %s has the shape %s, the output %s" % shapes)
        a, b = wanted.astype("float64").ravel(), value.astype("float64").ravel()
        # NaN counts as different, never as equal.
        far = float(np.abs(a - b).max()) if a.size else 0.0
        norms = float(np.linalg.norm(a) * np.linalg.norm(b))
        same = float(np.dot(a, b) / norms) if norms else (1.0 if not np.any(a - b) else 0.0)
        return {"max_abs": far if far == far else None, "cosine": same if same == same else None}  # noqa: PLR0124

    def details(self) -> "Dict[str, Any]":
        """Return the results of a kind of model in addition to its outputs."""
        return {}

    def close(self) -> None:
        """Drop the session, which completes the profile."""
        self.session = None


def nodes_of(log: str) -> "List[Dict[str, str]]":
    """Return the nodes that a verbose log reports as not taken: name, type, reason."""
    rows = _REFUSED.findall(log.rpartition(_LAST_ROUND)[2])
    nodes = {name: {"name": name, "type": kind, "reason": why[:300]} for kind, name, why in rows}
    return list(nodes.values())[:NODES_KEPT]


def told_of(nodes: "List[Dict[str, str]]") -> str:
    """Return a sentence about the nodes that would run on the CPU, "" for none."""
    if not nodes:
        return ""
    names = ", ".join("%s (%s)" % (node["name"], node["type"]) for node in nodes[:NODES_TOLD])
    more = " and %d more" % (len(nodes) - NODES_TOLD) if len(nodes) > NODES_TOLD else ""
    reason = nodes[0]["reason"] or "the log has no reason"
    return "QNN does not take the nodes %s%s, which would run on the CPU: %s" % (
        names,
        more,
        reason,
    )


def outputs_of(names: "Sequence[str]") -> bytes:
    """Return the bytes that, appended to an ONNX model, make these tensors outputs.

    Protocol buffers merge a repeated message. Tags of onnx.proto: ModelProto.graph 7,
    GraphProto.output 12, ValueInfoProto.name 1.
    """
    ends = (_field(12, _field(1, name.encode("utf-8"))) for name in names)
    return _field(7, b"".join(ends))


def _field(number: int, content: bytes) -> bytes:
    size, left = bytearray(), len(content)
    while left > 127:
        size.append(left & 127 | 128)
        left >>= 7
    return bytes([number << 3 | 2]) + bytes(size) + bytes([left]) + content


def samples_of(arguments: argparse.Namespace, model: Model) -> "Dict[str, Dict[str, Any]]":
    """Return the inputs of each sample of an .npz (`0/input`)."""
    samples: "Dict[str, Dict[str, Any]]" = {}
    with model.np.load(arguments.samples, allow_pickle=False) as archive:
        for key in archive.files:
            number, _, name = key.partition("/")
            samples.setdefault(number, {})[name] = archive[key]
    return samples


def run_samples(arguments: argparse.Namespace, model: Model, outcome: "Dict[str, Any]") -> int:
    """Run each sample once; the outputs go to another .npz (`0/output`)."""
    arrays: "Dict[str, Any]" = {}
    times = []
    for number, feed in samples_of(arguments, model).items():
        began = time.perf_counter()
        try:
            values = model.session.run(None, feed)
        except Exception as error:
            sys.stderr.write("sample %s failed: %s\n" % (number, error))
            outcome["error"] = "sample %d: %s" % (int(number) + 1, error)
            return FAILED
        times.append((time.perf_counter() - began) * 1000)
        names = [tensor.name for tensor in model.session.get_outputs()]
        arrays.update(("%s/%s" % (number, name), value) for name, value in zip(names, values))
    model.np.savez(arguments.outputs, **arrays)
    outcome["runs_ms"], outcome["run_ms"] = times, statistics.median(times)
    return 0


def run_nodes(arguments: argparse.Namespace, model: Model, outcome: "Dict[str, Any]") -> int:
    """Run the samples with each group of tensors as outputs.

    A provider may refuse a graph because of one tensor. Then each half of the group is tried, down
    to the single tensor, which is left out.
    """
    samples, arrays = samples_of(arguments, model), {}  # type: ignore[var-annotated]
    outcome["unseen"], groups = [], list(model.spec["added"])
    model.register()
    while groups:
        group = groups.pop()
        try:
            session = model.opened(model.spec["model"], None, None, group)
            for number, feed in samples.items():
                names = ["%s/%s" % (number, name) for name in group]
                arrays.update(zip(names, session.run(group, feed)))
        except Exception as error:
            sys.stderr.write("%d tensors cannot be outputs: %s\n" % (len(group), error))
            if len(group) > 1:
                middle = len(group) // 2
                groups += [group[:middle], group[middle:]]
            else:
                outcome["unseen"] += group
                outcome["error"] = str(error)
    model.np.savez(arguments.outputs, **arrays)
    return 0 if arrays else FAILED


def work(arguments: argparse.Namespace, model: Model, outcome: "Dict[str, Any]") -> int:
    """Do the work, fill in the outcome, and return the exit status."""
    spec = model.spec
    outcome["versions"] = model.versions()
    if spec.get("added"):
        return run_nodes(arguments, model, outcome)
    began = time.perf_counter()
    try:
        seconds, outcome["device"] = model.open(None if arguments.check else arguments.profile)
    except Exception as error:  # onnxruntime raises its own classes
        outcome["error"] = str(error)
        # A second attempt takes as long as the first one.
        if CPU_NODES in str(error) and time.perf_counter() - began < arguments.timeout / 4:
            outcome["untaken"] = model.untaken()
            outcome["error"] = told_of(outcome["untaken"]) or outcome["error"]
        sys.stderr.write("no session: %s\n" % outcome["error"])
        return NO_SESSION
    outcome["session_ms"] = seconds * 1000
    outcome["providers"] = model.session.get_providers()
    if arguments.samples:
        status = run_samples(arguments, model, outcome)
        model.close()
        return status
    feed = model.feed()
    try:
        times = []
        for number in range(1 if arguments.check else spec["warmups"] + spec["iterations"]):
            began = time.perf_counter()
            outputs = model.session.run(None, feed)
            if arguments.check or number >= spec["warmups"]:
                times.append((time.perf_counter() - began) * 1000)
    except Exception as error:
        sys.stderr.write("run failed: %s\n" % error)
        outcome["error"] = str(error)
        return FAILED
    outcome["runs_ms"], outcome["run_ms"] = times, statistics.median(times)
    outcome["outputs"] = model.compared(outputs)
    outcome.update(model.details())
    if arguments.keep:
        os.makedirs(arguments.keep, exist_ok=True)
        for number, value in enumerate(outputs):
            model.np.save(os.path.join(arguments.keep, "%d.npy" % number), value)
    model.close()
    return 0


def run(kind: "Callable[[Dict[str, Any]], Type[Model]]") -> None:
    """Read the request, work with the kind of model that it needs, write the outcome."""
    parser = argparse.ArgumentParser()
    for name in ("--site", "--spec", "--outcome", "--profile", "--keep", "--samples", "--outputs"):
        parser.add_argument(name)
    parser.add_argument("--timeout", type=float, default=300.0)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    with open(arguments.spec, encoding="utf-8") as stream:
        spec = json.load(stream)
    late = threading.Timer(arguments.timeout, lambda: os._exit(LATE))
    late.daemon = True
    late.start()
    outcome: "Dict[str, Any]" = {}
    try:
        status = work(arguments, kind(spec)(arguments.site, spec), outcome)
    except BadRequestError as error:
        sys.stderr.write("%s\n" % error)
        outcome["error"], status = str(error), BAD
    part = arguments.outcome + ".part"
    if os.path.lexists(part):
        os.unlink(part)
    with open(part, "x", encoding="utf-8") as stream:
        json.dump(outcome, stream)
    os.replace(part, arguments.outcome)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # a provider that failed may crash on exit


if __name__ == "__main__":
    run(lambda _: Model)
