"""The reader of the log of benchmark_model (TensorFlow Lite, LiteRT).

Sources: tensorflow/lite/tools/benchmark, whose last line has other words before 2.2; in LiteRT 2
litert/tools/benchmark_litert_model.h, whose times are in ms, and the dispatch delegate, which is
that of any vendor's NPU (litert/runtime/dispatch).
"""

from __future__ import annotations

import itertools
import re
from pathlib import PurePath

from msgspec.structs import replace

from fleet.model.record import Measure, Metrics
from fleet.profiles.formats.base import UNPROVEN, Profile, number

_NUMBER = r"(\d{1,15}(?:\.\d{1,15})?(?:[eE][+-]?\d{1,3})?)"
_NEXT = r".{0,40}\n.{0,120}"
_TIMES = (  # ms in a unit of the log, the names of the times, and the lines
    (1e-3, ("init_ms", "run_first_ms", "run_mean_ms"), re.compile(
        rf"Inference timings in us: Init: {_NUMBER}, First inference: {_NUMBER}, "
        rf"Warmup \(avg\): [\d.e+-]{{1,30}}, Inference \(avg\): {_NUMBER}"
    )),
    (1e-3, ("init_ms", "run_mean_ms"), re.compile(
        rf"Average inference timings in us: Warmup: [\d.e+-]{{1,30}}, Init: {_NUMBER}, "
        rf"(?:no stats|Inference): {_NUMBER}"
    )),
    (1.0, ("init_ms", "run_first_ms", "run_mean_ms", "run_min_ms"), re.compile(
        rf"Model initialization: +{_NUMBER} ms(?:{_NEXT}Warmup \(first\): +{_NUMBER} ms)?"
        rf"(?:{_NEXT}Warmup \(avg\):)?{_NEXT}Inference \(avg\): +{_NUMBER} ms"
        rf"(?:{_NEXT}Inference \(min\): +{_NUMBER} ms)?"
    )),
)  # fmt: skip
_BEGIN = re.compile(r"Load(?:ed|ing) model|Graph: \[|Initialized session")
_START = re.compile(r"^.*\bSTARTING!.*$", re.MULTILINE)
_GRAPH = re.compile(r"\bGraph: \[(.*)\]|\bLoading model from: (.*)")
_ERROR = re.compile(r"^ERROR: (.*)$", re.MULTILINE)
# The second form is that of the QNN delegate alone.
_DELEGATE = re.compile(
    r"Replacing (?P<taken>\d{1,9}) out of (?P<all>\d{1,9}) node\(s\) with delegate "
    r"\((?P<name>[^)]*)\)|(?P<qnn>TfLiteQnn\w*) delegate: (?P<ours>\d{1,9}) nodes delegated out of "
    r"(?P<of>\d{1,9}) nodes"
)
_QUALCOMM = re.compile(r"qnn|qualcomm|htp|hexagon", re.IGNORECASE)
_DISPATCH = "DispatchDelegate"
_VENDOR = re.compile(r"LiteRtDispatch_Qualcomm|applied successfully: Qualcomm|libQnn\w+\.so")


def is_log(text: str) -> bool:
    """Return whether a text has the times of a run of benchmark_model."""
    return any(pattern.search(text) for _, _, pattern in _TIMES)


def read(text: str) -> Profile | list[Profile]:
    """Return the profile of each run of a log. A run begins with `STARTING!` or after the times of
    the run before it.
    """
    starts = {match.start() for match in _START.finditer(text)}
    ends = {match.end() for _, _, pattern in _TIMES for match in pattern.finditer(text)}
    parts = itertools.pairwise(sorted({0, *starts, *ends, len(text)}))
    runs = [_run(text[a:b]) for a, b in parts if b in ends or a in starts]
    return runs if len(runs) > 1 else runs[0]


def _run(text: str) -> Profile:
    graph = _GRAPH.search(text)
    marks = (PurePath((graph[1] or graph[2]).strip()).name,) if graph else ()
    numbers: dict[str, Measure] = {}
    for scale, names, pattern in _TIMES:
        values = match.groups() if (match := pattern.search(text)) else ()
        known = ((name, number(value)) for name, value in zip(names, values, strict=False) if value)
        numbers |= {name: Measure(took * scale, "ms") for name, took in known if took is not None}
    if not numbers:
        error = _ERROR.search(text)
        problem = f"failed: {error[1] if error else 'the log of the run ends before its times'}"
        return Profile("litert-benchmark", runner="litert", problems=(problem,), marks=marks)
    problem, off = _place(text)
    numbers |= {} if off is None else {"ops_off_npu": Measure(off)}
    metrics = replace(Metrics.of(numbers), source=numbers)
    problems = (problem,) if problem else ()
    return Profile("litert-benchmark", metrics, runner="litert", problems=problems, marks=marks)


def _place(text: str) -> tuple[str, int | None]:
    """Return why a run was not on Qualcomm's NPU, or "", and the nodes that stayed on the CPU."""
    delegates = [
        (match["name"] or match["qnn"], int(match["taken"] or match["ours"]),
         int(match["all"] or match["of"]))
        for match in _DELEGATE.finditer(text)
    ]  # fmt: skip
    at_work = [row for row in delegates if row[1]]
    ours = [row for row in at_work if _QUALCOMM.search(row[0]) or row[0] == _DISPATCH]
    if ours:
        name, taken, nodes = ours[0]
        sure = name != _DISPATCH or _VENDOR.search(text)
        return "" if sure else UNPROVEN.format(tool=f"{name} of LiteRT"), nodes - taken
    if at_work:
        return f"cpu-fallback: the delegate is {at_work[0][0]}", None
    if not delegates and not _BEGIN.search(text):
        return UNPROVEN.format(tool="benchmark_model, cut at its beginning,"), None
    return "cpu-fallback: no delegate took a node of the model", None
