"""Readers for ExecuTorch: the line of PyTorchObserver, the log of qnn_executor_runner, the etdump.

An etdump needs ExecuTorch's own reader (executorch.devtools). It is a large package, so fleet does
not depend on it.
"""

from __future__ import annotations

import importlib
import itertools
import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from fleet.model.errors import ProfileError, reason
from fleet.model.metrics import ANSWER, PROMPT
from fleet.model.record import Measure, Metrics, Op
from fleet.profiles.formats.base import (
    RATE,
    RATE_UNIT,
    Profile,
    Sources,
    finite,
    mean,
    measured,
    number,
    slug,
    spread,
)
from fleet.profiles.formats.qnn_events import ProfileEvent, named, operations

OBSERVER = "PyTorchObserver {"
INSTALL = "pip install executorch"
STARTED = "Start inference ("
_TOOK = re.compile(r"(\d{1,9}) inference took (\d{1,15}(?:\.\d{1,15})?) ms, avg")
_BARE = re.compile(r"(?P<name>.*) \((?P<unit>us|cycles|count|bytes)\)")
_NS = 1e6  # in a ms
_TIMES = {
    "Method::execute": "execute_us",
    "Method::init": "load_us",
    "DELEGATE_CALL": "delegate_call_us",
}
STATS = "executorch:stats.h"
_NUMBER = r"(\d{1,15}(?:\.\d{1,15})?)"
_STATISTICS = {
    "prompt_tokens": (re.compile(rf"Prompt Tokens: {_NUMBER}"), "", 1.0),
    "generated_tokens": (re.compile(rf"Generated Tokens: {_NUMBER}"), "", 1.0),
    "init_ms": (re.compile(rf"Model Load Time:\s*{_NUMBER} \(seconds\)"), "ms", 1000.0),
    "ttft_ms": (re.compile(rf"Time to first generated token:\s*{_NUMBER} \(sec"), "ms", 1000.0),
    PROMPT.rate: (re.compile(rf"Prompt evaluation:.*?Rate:\s*{_NUMBER}"), "tok/s", 1.0),
    ANSWER.rate: (re.compile(rf"Generated \d+ tokens:.*?Rate:\s*{_NUMBER}"), "tok/s", 1.0),
    "decode_ms": (re.compile(rf"Generated \d+ tokens:\s*{_NUMBER} \(sec"), "ms", 1000.0),
}
_REPORT = re.compile(rf"^.*{STATS}:?\d*\]\s*Prompt Tokens:", re.MULTILINE)  # its first line
_OBSERVED = re.compile(r"PyTorchObserver (\{.*\})")


def observed(text: str) -> dict[str, Measure]:
    """Return the numbers of a line `PyTorchObserver {...}`; {} for another text.

    The format is that of extension/llm/runner/stats.h of pytorch/executorch.
    """
    match = _OBSERVED.search(text)
    try:
        stats: Any = json.loads(match[1]) if match else {}
        scale = float(stats.get("SCALING_FACTOR_UNITS_PER_SECOND", 1000))

        def between(begin: str, end: str) -> float | None:
            """Return the ms between two moments; None if a runner left one of them at 0."""
            moments = float(stats[begin]), float(stats[end])
            return 1000 * (moments[1] - moments[0]) / scale if all(moments) else None

        generated, prompt = int(stats["generated_tokens"]), int(stats["prompt_tokens"])
        prefill = between("inference_start_ms", "prompt_eval_end_ms")
        decode = between("prompt_eval_end_ms", "inference_end_ms")
        times = {
            "ttft_ms": between("inference_start_ms", "first_token_ms"),
            "init_ms": between("model_load_start_ms", "model_load_end_ms"),
        }
        numbers = {name: Measure(ms, "ms") for name, ms in times.items() if ms is not None}
        rates = [
            1000 * tokens / ms if ms is not None and ms > 0 else None
            for tokens, ms in ((prompt, prefill), (generated, decode))
        ]
        numbers |= measured(PROMPT, prompt, rates[0])
        numbers |= measured(ANSWER, generated, rates[1], decode)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, ZeroDivisionError):
        return {}
    except RecursionError:
        return {}
    return numbers if all(finite(measure.value) is not None for measure in numbers.values()) else {}


def inferences(text: str) -> dict[str, Measure]:
    """Return the times of qnn_executor_runner; {} if the text has none.

    The line is `3 inference took 5.505000 ms, avg 1.835000 ms`. Such a line follows each `Start
    inference (0)`, for a row of the input list; the last line is their sum. The source has only the
    mean of each row, so there is no median.
    """
    count, took, started = 0, 0.0, False
    for line in text.splitlines():
        match = _TOOK.search(line) if started else None
        if match:
            count, took = count + int(match[1]), took + float(match[2])
        started = STARTED in line or (started and not match)
    return _timed(took / count, count) if count and took > 0 else {}


def speed_file(text: str, iterations: int) -> dict[str, Measure]:
    """Return the times of inference_speed.txt of qnn_executor_runner.

    The file has the ms of a row of the input list, which is the sum of its `--iteration` inferences
    (qnn_executor_runner.cpp of pytorch/executorch, cff6f4d).
    """
    took = number(text.strip())
    return _timed(took / iterations) if took and took > 0 else {}


def _timed(milliseconds: float, count: int | None = None) -> dict[str, Measure]:
    numbers = {"run_mean_ms": Measure(milliseconds, "ms")}
    numbers |= {} if count is None else {"inferences": Measure(count)}
    return numbers | {RATE: Measure(1000 / milliseconds, RATE_UNIT)}


def statistics(text: str) -> dict[str, Measure]:
    """Return the times that ET_LOG of qnn_llama_runner prints in seconds; {} for another text.

    The lines are those of print_report in extension/llm/runner/stats.h. A time of 0.000000 is not a
    measurement, because the program had no clock for it.
    """
    numbers = {}
    for name, (pattern, unit, scale) in _STATISTICS.items():
        match = pattern.search(text)
        value = number(match[1]) if match else None
        if value:
            numbers[name] = Measure(round(value * scale, 6), unit)
    return numbers


def is_log(text: str) -> bool:
    """Return whether this is a log of a program of ExecuTorch, or the table of the Inspector."""
    marks = OBSERVER in text or STATS in text or is_table(text)
    return marks or bool(inferences(text))


def is_table(text: str) -> bool:
    """Return whether this is the table of the Inspector (print_data_tabular)."""
    return "event_block_name" in text and "event_name" in text and "avg (ms)" in text


def _table(text: str) -> Profile:
    """Return the means of the Inspector's table in ms, and the operations with their delegates."""
    rows = [
        [cell.strip() for cell in re.split(r"[│|]", line.strip().strip("│|"))]
        for line in text.splitlines()
        if re.match(r"\s*[│|]", line)
    ]
    heads = [row for row in rows if "event_name" in row and "avg (ms)" in row]
    if not heads:
        raise ProfileError(
            "the table of the Inspector has no columns event_name and avg (ms)",
            hint="write it again with Inspector.print_data_tabular()",
        )
    head, ops, numbers = heads[0], list[Op](), dict[str, Measure]()
    delegates = set[str]()
    for row in rows:
        cells = dict(zip(head, row, strict=False))
        took = number(cells.get("avg (ms)", ""))
        name = cells.get("event_name", "")
        if took is None or len(row) != len(head):
            continue
        delegate = cells.get("delegate_backend_name", "")
        delegates |= {delegate} - {"", "None", "nan"}
        if name in _TIMES:
            numbers.setdefault(_TIMES[name], Measure(took * 1000, "us"))
        elif "::" not in name:
            ran_on = "npu" if "qnn" in delegate.lower() else ""
            ops.append(Op(name, took * 1000, "us", ran_on=ran_on))
    if not numbers and not ops:
        raise ProfileError(
            "the table of the Inspector has no times", hint="copy the complete table again"
        )
    metrics = replace(Metrics.of(numbers), source=numbers)
    problem = ""
    if delegates and not any("qnn" in name.lower() for name in delegates):
        problem = f"cpu-fallback: the operations ran in the delegate {', '.join(sorted(delegates))}"
    problems = (problem,) if problem else ()
    return Profile("executorch-table", metrics, tuple(ops), "executorch", problems=problems)


def read_log(text: str) -> Profile | list[Profile]:
    """Return the profile of each run of a log. Raises ProfileError."""
    if is_table(text):
        return _table(text)
    starts = [match.start() for match in _REPORT.finditer(text)]
    cuts = starts[1:] or [match.end() for match in _OBSERVED.finditer(text)][:-1]
    runs = [_run(text[a:b]) for a, b in itertools.pairwise((0, *cuts, len(text)))]
    return runs if len(runs) > 1 else runs[0]


def _run(text: str) -> Profile:
    numbers = statistics(text) | observed(text) | inferences(text)
    if not numbers:
        raise ProfileError(
            "fleet cannot find the times in this log of ExecuTorch",
            hint="copy the complete log again",
        )
    metrics = replace(Metrics.of(numbers), source=numbers)
    answered = ANSWER.tokens in numbers and ANSWER.rate not in numbers
    problems = ("the program measured no time for its tokens",) * answered
    return Profile("executorch-log", metrics, runner="executorch", problems=problems)


def read_etdump(data: bytes) -> Profile:
    """Return the times and operations of an etdump, read by ExecuTorch's own Inspector.

    Raises ProfileError if the reader is not installed, or if it cannot read the file.
    """
    try:
        devtools = importlib.import_module("executorch.devtools")
    except ImportError as error:
        raise ProfileError(
            "fleet needs the Python package executorch to read etdump files, but it is not "
            "installed",
            hint=INSTALL,
        ) from error
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "etdump.etdp")
        path.write_bytes(data)
        try:
            return _inspected(devtools.Inspector(etdump_path=str(path)))
        except Exception as error:
            raise ProfileError(
                "the Python package executorch cannot read this etdump, perhaps because "
                f"another version of ExecuTorch wrote it: {reason(error)}",
                hint="pip install executorch==VERSION (the version that made the .pte)",
            ) from error


def _inspected(inspector: Any) -> Profile:  # noqa: ANN401 - a foreign class
    """Return the profile of `event_blocks[].events[].perf_data.raw`.

    The values are in ms, the default target_time_scale of the Inspector (docs of executorch:
    Inspector APIs). QNN's delegate logs plain numbers with the unit in the name, but the Inspector
    treats them as nanoseconds (backends/qualcomm/runtime/backends/QnnProfiler.cpp).
    """
    sources, ops = Sources(), list[Op]()
    values = defaultdict[tuple[str, str], list[float]](list)
    for block in inspector.event_blocks:
        nodes: list[ProfileEvent] = []
        for event in block.events:
            name, raw = str(event.name), _numbers(getattr(event.perf_data, "raw", None) or ())
            bare = _BARE.fullmatch(name) if getattr(event, "is_delegated_op", False) else None
            if not raw:
                continue
            if bare and "OpId_" in name:
                nodes.append(ProfileEvent("NODE", name, mean(raw) * _NS, bare["unit"], "QNN"))
            elif bare:
                for took in raw:
                    sources.add(name, round(took * _NS), bare["unit"])
                    key, unit, value = _named(name, bare, round(took * _NS))
                    values[key, unit].append(value)
            elif name in _TIMES:
                values[_TIMES[name], "us"] += [took * 1000 for took in raw]
            elif "::" not in name:
                backend = str(getattr(event, "delegate_backend_name", None) or "")
                ran_on = "npu" if "qnn" in backend.lower() else ""
                ops.append(Op(name, mean(raw) * 1000, "us", ran_on=ran_on, graph=str(block.name)))
        # only the HTP counts cycles
        ops += [
            replace(op, ran_on="npu" if op.unit == "cycles" else "", graph=str(block.name))
            for op in operations(nodes)
        ]
    if not values and not ops:
        raise ProfileError(
            "the etdump contains no events", hint="run the program again and wait until it ends"
        )
    numbers = {name: Measure(mean(taken), unit) for (name, unit), taken in values.items()}
    for name in ("execute", "qnn_execute"):
        numbers |= spread(name, values.get((f"{name}_us", "us"), ()))
    metrics = replace(Metrics.of(numbers), source=sources.numbers)
    return Profile("etdump", metrics, tuple(ops), runner="executorch")


def _named(name: str, bare: re.Match[str], value: float) -> tuple[str, str, float]:
    """Return (name, unit, value) as in other profiles of QNN.

    Only the execution has another name, because its usual name is that of ExecuTorch's execution.
    """
    identifier = name if bare["unit"] == "cycles" else bare["name"]
    metric = named(ProfileEvent("", identifier, value, bare["unit"]))
    key, unit, value = metric or (slug(name), bare["unit"], value)
    return ("qnn_execute_us" if key == "execute_us" else key), unit, value


def _numbers(values: Iterable[object]) -> list[float]:
    return [number for number in map(finite, values) if number is not None]
