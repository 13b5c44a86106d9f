"""Detection of the format of a profile by its content, and readers for profiles of other tools.

Sources: qai_hub's profile of a job and ai-hub-models configs/perf_yaml.py; ONNX Runtime's session
profile (Chrome trace events); winml perf (BenchmarkResult.to_dict); MNN's llm_demo
(transformers/llm/engine); the text of qnn-profile-viewer 2.2x and later.

If a tool names the device on which a model ran, the device decides whether the record counts.
Otherwise nothing is proven about the NPU, and the record does not count.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from fleet.bundles.aihub.models import RUNNERS
from fleet.config.yamlpos import parse
from fleet.model.errors import InputError, ProfileError, UnknownProfileError, reason
from fleet.model.metrics import ANSWER, PROMPT
from fleet.model.record import Measure, Metrics, Op
from fleet.profiles.formats import executorch, genie, geniex, litert, llama_cpp, mllm, qnn, qnn_json
from fleet.profiles.formats.base import (
    RATE,
    RATE_UNIT,
    UNPROVEN,
    Profile,
    decoded,
    finite,
    json_fault,
    mean,
    middle,
    number,
    percentile,
)
from fleet.profiles.formats.qnn_events import ProfileEvent, profile_of

_NUMBER = r"(\d{1,15}(?:\.\d{1,15})?(?:[eE][+-]?\d{1,3})?)"
_SECTION = re.compile(
    r"[-\s]*(?P<phase>Init|Compose Graphs|Finalize|De-Init|Execute|Lib-Load) Stats"
    r"(?: \((?P<kind>Overall|Average|Min|Max)\))?:[-\s]*"
)
_GRAPH = re.compile(r"[-\s]*Graph \d+ \((.*)\):\s*")
_ROW = re.compile(rf"\s*(?P<name>NetRun(?: IPS)?|Backend) ?(?:\((?P<what>.*)\))?: +{_NUMBER} (\S+)")
_MNN = {
    "prompt_tokens": re.compile(rf"prompt tokens num = {_NUMBER}"),
    "generated_tokens": re.compile(rf"decode tokens num = {_NUMBER}"),
    PROMPT.rate: re.compile(rf"prefill speed = {_NUMBER} tok/s"),
    ANSWER.rate: re.compile(rf"decode speed = {_NUMBER} tok/s"),
}
# Formats that are recognised but not read: the sign, the name of the tool, and the cure.
_SIGNS = (
    (re.compile(r'"traceEvents"'), "a Chrome trace (optrace of qnn-profile-viewer, or a browser's)",
     "import the CSV of qnn-profile-viewer of the same run; open this file in ui.perfetto.dev"),
    (re.compile(r"\[ *Prompt: +[\d.]+ t/s *\| *Generation: +[\d.]+ t/s *\]"),
     "the last line of llama-cli, which does not say where the model ran",
     "llama-bench -o json > NEW.json, or import the log of llama-completion -lv 4"),
    (re.compile(r"^\|.*\| *(?:pp|tg)\d+ *\| *[\d.]+ ± [\d.]+ *\|$", re.MULTILINE),
     "rows of llama-bench without the line that names their columns",
     "put the first two lines of the table above the rows (they begin with `| model`)"),
    (re.compile(r"^(Layer Id|Layer Times|Total Inference Time|SNPE SDK version:).*", re.MULTILINE),
     "the output of snpe-diagview or snpe_bench.py (SNPE)",
     "measure the model with QNN or fleet run; fleet reads no profiles of SNPE"),
)  # fmt: skip


def recognised(text: str) -> UnknownProfileError | None:
    """Return the error for a file of a tool that fleet knows by name but does not read."""
    head = text[: 1 << 16]
    tool = next(((what, cure) for sign, what, cure in _SIGNS if sign.search(head)), None)
    if tool is None:
        return None
    return UnknownProfileError(f"the file is {tool[0]}; fleet does not read it", hint=tool[1])


def _profile(
    kind: str,
    numbers: Mapping[str, Measure | None],
    problem: str,
    **more: Any,  # noqa: ANN401
) -> Profile:
    known = {name: measure for name, measure in numbers.items() if measure is not None}
    if not known:
        raise ProfileError(
            f"the {kind} file contains no times", hint="copy the whole file from the tool again"
        )
    metrics = replace(Metrics.of(known), source=known)
    return Profile(kind, metrics, problems=(problem,) if problem else (), **more)


def _measure(value: object, unit: str = "", scale: float = 1.0) -> Measure | None:
    known = finite(value)
    return None if known is None else Measure(known * scale, unit)


def _times(took: list[float]) -> dict[str, Measure | None]:
    """Return the median, minimum, 90th percentile and count of single inferences in ms."""
    if not took:
        return {}
    rate = Measure(1000 * len(took) / sum(took), RATE_UNIT) if sum(took) > 0 else None
    return {
        "run_ms": Measure(middle(took), "ms"),
        "run_min_ms": Measure(min(took), "ms"),
        "run_p90_ms": Measure(percentile(took, 90), "ms") if len(took) > 1 else None,
        "inferences": Measure(len(took)),
        RATE: rate,
    }


def _numbers(values: object) -> list[float]:
    return [known for value in values if (known := finite(value)) is not None] if (
        isinstance(values, list)
    ) else []  # fmt: skip


def read_object(data: Mapping[str, Any]) -> Profile | list[Profile] | None:
    """Return the content of one JSON object; None if it belongs to no known tool.

    Raises ProfileError for an object without numbers.
    """
    if isinstance(data.get("execution_summary"), Mapping):
        return _ai_hub(data)
    if isinstance(data.get("benchmark_info"), Mapping) and isinstance(
        data.get("latency_ms"), Mapping
    ):
        return _winml(data)
    if isinstance(data.get("agg"), Mapping) and "plugin" in data:
        return geniex.read(data)
    return None


def _ai_hub(data: Mapping[str, Any]) -> Profile:
    """Return the profile of a job of AI Hub (`download_profile`): times in µs, layers with
    units.
    """
    summary = data["execution_summary"]
    took = [value / 1000 for value in _numbers(summary.get("all_inference_times"))]
    detail = data.get("execution_detail")
    layers = [layer for layer in detail if isinstance(layer, Mapping)] if (
        isinstance(detail, list)
    ) else []  # fmt: skip
    units = {str(layer.get("compute_unit", "")).upper() for layer in layers} - {""}
    problem = UNPROVEN.format(tool="AI Hub") if not units else ""
    if units and "NPU" not in units:
        problem = f"cpu-fallback: all layers ran on {', '.join(sorted(units))}"
    numbers: dict[str, Measure | None] = _times(took)
    numbers["run_min_ms"] = numbers.get("run_min_ms") or _measure(
        summary.get("estimated_inference_time"), "ms", 1e-3
    )
    numbers["init_ms"] = _measure(summary.get("first_load_time"), "ms", 1e-3)
    for name in ("estimated_inference_peak_memory", "first_load_peak_memory"):
        numbers[f"{name.removeprefix('estimated_')}_bytes"] = _measure(summary.get(name), "bytes")
    if units:
        off = sum(str(layer.get("compute_unit", "")).upper() != "NPU" for layer in layers)
        numbers["ops_off_npu"] = Measure(off)
    ops = tuple(filter(None, map(_layer, layers)))
    return _profile("ai-hub-job", numbers, problem, ops=ops, runner="ai-hub")


def _layer(layer: Mapping[str, Any]) -> Op | None:
    """Return the operation of a layer in µs, or in cycles if AI Hub gives no time (0)."""
    times = ((finite(layer.get(f"execution_{key}")), unit) for key, unit in _LAYER_UNITS)
    took = next(((value, unit) for value, unit in times if value), None)
    if took is None:
        return None
    unit = str(layer.get("compute_unit", "")).lower()
    return Op(str(layer.get("name", "")), *took, kind=str(layer.get("type", "")), ran_on=unit)


_LAYER_UNITS = (("time", "us"), ("cycles", "cycles"))


def _winml(data: Mapping[str, Any]) -> Profile:
    info, latency = data["benchmark_info"], data["latency_ms"]
    device, provider = str(info.get("device", "")), str(info.get("ep") or "")
    problem = ""
    if device.lower() != "npu" or (provider and "qnn" not in provider.lower()):
        problem = f"cpu-fallback: winml perf ran on {device or 'an unknown device'} with {provider}"
    numbers = _times(_numbers(data.get("raw_samples_ms")))
    for name, key in (("run_mean_ms", "mean"), ("run_min_ms", "min"), ("run_ms", "p50"),
                      ("run_p90_ms", "p90")):  # fmt: skip
        numbers[name] = numbers.get(name) or _measure(latency.get(key), "ms")
    return _profile("winml-perf", numbers, problem, runner="winml")


def read_events(rows: list[dict[str, Any]]) -> Profile | None:
    """Return the profile of ONNX Runtime's session profile; None for another list."""
    events = [row for row in rows if row.get("cat") in {"Session", "Node"}]
    if not events:
        return None
    if not any("dur" in row for row in events):
        raise UnknownProfileError(
            "the file is a session profile of ONNX Runtime without durations (`dur`), so it "
            "contains no times",
            hint="write it again with enable_profiling of onnxruntime.SessionOptions",
        )
    took, providers, nodes = list[float](), set[str](), defaultdict[str, list[float]](list)
    ran: dict[str, str] = {}
    numbers: dict[str, Measure | None] = {}
    for row in rows:
        duration, name = finite(row.get("dur")), str(row.get("name", ""))
        arguments = row.get("args") if isinstance(row.get("args"), Mapping) else {}
        provider = str(arguments.get("provider", "")) if isinstance(arguments, Mapping) else ""
        if duration is None:
            continue
        if row.get("cat") == "Node":
            providers |= {provider} - {""}
            nodes[name].append(duration)
            ran[name] = "npu" if "QNN" in provider else "cpu" if "CPU" in provider else ""
        elif name == "model_run":
            took.append(duration / 1000)
        elif name == "session_initialization":
            numbers["init_ms"] = Measure(duration / 1000, "ms")
    problem = UNPROVEN.format(tool="ONNX Runtime") if not providers else ""
    if providers and "QNNExecutionProvider" not in providers:
        problem = f"cpu-fallback: all nodes ran on {', '.join(sorted(providers))}"
    ops = tuple(Op(name, mean(times), "us", ran_on=ran[name]) for name, times in nodes.items())
    return _profile("ort-profile", numbers | _times(took), problem, ops=ops, runner="ort")


def read_perf_yaml(data: Mapping[str, Any]) -> list[Profile]:
    """Return a profile for each figure of AI Hub's perf.yaml: a model on a device by a runtime.

    Raises ProfileError for an entry without a figure.
    """
    return [_perf_row(place, row) for place, row in _perf_rows(data, ())]


_PERF_LEVELS = ("precisions", "components", "performance_metrics", "")


def _perf_rows(
    data: Mapping[str, Any], place: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yield (precision, component, device, runtime) and the data of each figure.

    LLMs have several figures for the same place.
    """
    if len(place) == len(_PERF_LEVELS):
        yield from ((place, {**data, **row}) for row in data.get("llm_metrics", [data]))
        return
    level = _PERF_LEVELS[len(place)]
    for key, inner in (data[level] if level else data).items():
        yield from _perf_rows(inner, (*place, key))


def _perf_row(place: tuple[str, ...], row: Mapping[str, Any]) -> Profile:
    """Return the profile of a figure.

    The time to the first token is a range, from the shortest prompt (one pass of the prompt
    processor) to the longest. It therefore has another name than the time of a single prompt. If
    GenieX measured the row, a rate of GenieX on QAIRT is that of the padded prompt
    (formats.geniex).
    """
    precision, component, device, runtime = place
    tools, layers = row.get("tool_versions", {}), row.get("layer_counts", {})
    first = row.get("time_to_first_token_range_milliseconds", {})
    memory = row.get("estimated_peak_memory_range_mb", {})
    name = PROMPT.rate
    if runtime == "geniex_qairt":
        name = f"padded_{PROMPT.rate}" if "geniex" in tools else "prefill_tps"
    numbers = {
        "run_min_ms": _measure(row.get("inference_time_milliseconds"), "ms"),
        ANSWER.rate: _measure(row.get("tokens_per_second"), "tok/s"),
        name: _measure(row.get("prefill_tokens_per_second"), "tok/s"),
        "ttft_min_ms": _measure(first.get("min"), "ms"),
        "ttft_max_ms": _measure(first.get("max"), "ms"),
        "peak_memory_min": _measure(memory.get("min"), "MB"),
        "peak_memory_max": _measure(memory.get("max"), "MB"),
        "ops_off_npu": _measure(layers["total"] - layers.get("npu", 0)) if layers else None,
    }
    unit = str(row.get("primary_compute_unit", row.get("desired_compute_unit", ""))).lower()
    problem = UNPROVEN.format(tool="AI Hub") if unit != "npu" else ""
    if unit in {"cpu", "gpu"}:
        problem = f"cpu-fallback: the figure is of the {unit.upper()}"
    build = tools.get("qairt", "")
    origin = {
        "device": device, "published": runtime, "precision": precision, "component": component,
        "unit": unit, "context": row.get("context_length"), "job": row.get("job_id"),
        "runtime": f"qairt-{build}" if build else None, "tools": dict(tools),
    }  # fmt: skip
    return _profile(
        "ai-hub-perf", numbers, problem, runner=RUNNERS.get(runtime, "ai-hub"),
        runtime=build if build.count(".") == 3 else "", marks=(" / ".join(place),),
        origin={key: value for key, value in origin.items() if value},
    )  # fmt: skip


def read_text(text: str) -> Profile | list[Profile] | None:
    """Return the profile of a log or a text; None if it belongs to no known tool."""
    if litert.is_log(text):
        return litert.read(text)
    if all(pattern.search(text) for name, pattern in _MNN.items() if name.endswith("_tps")):
        numbers = {name: _rate_or_count(pattern, text, name) for name, pattern in _MNN.items()}
        return _profile("mnn-log", numbers, UNPROVEN.format(tool="MNN's llm_demo"), runner="mnn")
    if any(_SECTION.fullmatch(line) for line in text.splitlines()[:400]):
        return _viewer(text)
    return None


def _rate_or_count(pattern: re.Pattern[str], text: str, name: str) -> Measure | None:
    match = pattern.search(text)
    value = number(match[1]) if match else None
    return None if value is None else Measure(value, "tok/s" if name.endswith("_tps") else "")


def _viewer(text: str) -> Profile:
    """Return the profile of qnn-profile-viewer without --output.

    The numbers are those of its CSV, the means of the executions.
    """
    events, graph, section = list[ProfileEvent](), "", ("", "")
    for line in text.splitlines():
        head, named = _SECTION.fullmatch(line), _GRAPH.fullmatch(line)
        if head:
            section, graph = (head["phase"], head["kind"] or ""), ""
        elif named:
            graph = named[1]
        row = _ROW.fullmatch(line.rstrip())
        if row is None or not section[0] or section[1] in {"Min", "Max"}:
            continue
        what, unit = row["what"] or "", row[4].upper()
        netrun = row["name"] != "Backend"
        events.append(
            ProfileEvent(
                section[0].upper(),
                "null" if netrun else what,
                number(row[3]),
                unit,
                "Operations" if "OpId_" in what else "",
                graph,
                netrun,
            )
        )
    return profile_of(events, "qnn-viewer-text")


MOST_BYTES = 256 << 20
KNOWN = (
    "record.json and JSON Lines of fleet, Genie profile JSON, CSV or JSON of qnn-profile-viewer, "
    "CSV of onnxruntime-qnn, llama-bench (json, jsonl, csv, sql, table), logs of llama-completion, "
    "ExecuTorch, mllm and genie-t2t-run, etdump, the text of qnn-profile-viewer, a profile and "
    "perf.yaml of AI Hub, a profile of ONNX Runtime, benchmark_model of LiteRT, winml perf, "
    "geniex-bench, MNN"
)
Read = Profile | list[Profile] | list[dict[str, Any]]
_BY_KEY: dict[str, Callable[[dict[str, Any]], Profile | list[Profile]]] = {
    "components": genie.read_data,
    "messages": qnn_json.read,
    "n_prompt": lambda data: llama_cpp.read_rows([data]),
}
_TABLE = re.compile(r"\| *(?:test|llm_demo) *\| *(?:t/s|speed\(tok/s\)) *\|")
_LOGGED = (
    b"QNN",
    b"Accelerator (",
    b"numInferences",
)  # the level `client` has only the last of these
_VIEWER = "qnn-profile-viewer --input_log LOG --output NEW.csv (then import NEW.csv)"
# A log line such as `[INFO] ...`, `[  0.5] ...` or `{main} ...` is no damaged JSON.
_JSON = re.compile(r"[\s\ufeff]*(\{\s*([\"'}]|$)|\[\s*([\[{\"'\]]|$))")
_GIVE = f"give a file of one of these formats: {KNOWN}"


def read(data: bytes) -> Read:
    """Return the content of the file: a profile, a profile for each row, or the data of fleet's
    records.

    Raises ProfileError with the line, the cause and the cure.
    """
    if not data.strip():
        raise ProfileError("the profile file is empty", hint="copy the file from the device again")
    if b"ED00" in {data[4:8], data[8:12]}:  # file_identifier of etdump.fbs; the size may precede it
        return executorch.read_etdump(data)
    if b"\0" in data[:4096] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        if any(name in data for name in _LOGGED):
            raise ProfileError(
                "the file is a binary QNN profiling log; convert it first", hint=_VIEWER
            )
        raise UnknownProfileError(
            "the file is binary, but in no profile format that fleet knows", hint=_GIVE
        )
    text = decoded(data)
    first = text.lstrip("\ufeff \t\r\n")[:1]
    if first == "{":
        return _objects(text)
    if first == "[":
        return _list(text)
    return _text(text)


def _objects(text: str) -> Read:
    """Return the content of one JSON object, or of one object on each line."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        lines = _lines(text)
        if lines is None:
            return _log_or(text, error)
        if "run_id" in lines[0]:
            return lines
        if "n_prompt" in lines[0]:
            return llama_cpp.read_rows(lines)
        raise UnknownProfileError(
            "the file contains JSON Lines, but in no profile format that fleet knows",
            hint=_GIVE,
        ) from error
    if "run_id" in data and "metrics" in data:
        return [data]
    for key, reader in _BY_KEY.items():
        if key in data:
            return reader(data)
    made = read_object(data)
    if made is not None:
        return made
    keys = ", ".join(map(str, list(data)[:5]))
    raise recognised(text) or UnknownProfileError(
        f"the file is JSON (its first keys: {keys}), but in no profile format that fleet knows",
        hint=_GIVE,
    )


def _lines(text: str) -> list[dict[str, Any]] | None:
    """Return the objects of JSON Lines; None if the first line is not an object of its own.

    Raises ProfileError for a later line that is not an object.
    """
    objects: list[dict[str, Any]] = []
    for row, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as error:
            if not objects:
                return None
            raise ProfileError(
                f"this line of the file is not valid JSON: {reason(error)}",
                line=row,
                hint="export or copy the file again",
            ) from error
        if not isinstance(item, dict):
            raise ProfileError(
                "this line of the file is not a JSON object",
                line=row,
                hint="export or copy the file again",
            )
        objects.append(item)
    return objects or None


def _list(text: str) -> Read:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        return _log_or(text, error)
    rows = [item for item in data if isinstance(item, dict)]
    if rows and len(rows) == len(data) and "run_id" in rows[0]:
        return rows
    if rows and "n_prompt" in rows[0]:
        return llama_cpp.read_rows(rows)
    made = read_events(rows)
    if made is not None:
        return made
    raise UnknownProfileError(
        "the file contains a JSON list, but in no profile format that fleet knows",
        hint=_GIVE,
    )


def _perf_yaml(text: str) -> list[Profile] | None:
    """Return the rows of AI Hub's perf.yaml; None for another text."""
    if "performance_metrics:" not in text:
        return None
    try:
        data = parse(text, Path("perf.yaml"), InputError).data
    except InputError as error:
        raise ProfileError(
            f"the file looks like AI Hub's: {error}", hint="copy the file again"
        ) from error
    try:
        return read_perf_yaml(data)
    except (AttributeError, KeyError, TypeError) as error:
        raise ProfileError(
            f"the file looks like AI Hub's perf.yaml, but its shape is another: {reason(error)}",
            hint="copy the file again",
        ) from error


def _log_or(text: str, error: Exception) -> Profile | list[Profile]:
    """Return the content of a log that begins like JSON, as `[INFO]` does. Raises ProfileError."""
    made = _logged(text)
    if made is None:
        unknown = _no_json(text, error) if _JSON.match(text) else _unknown()
        raise (recognised(text) or unknown) from error
    return made


def _logged(text: str) -> Profile | list[Profile] | None:
    for belongs, reader in _BY_TEXT:
        if belongs(text):
            return reader(text)
    return read_text(text) or _perf_yaml(text)


def _text(text: str) -> Profile | list[Profile]:
    made = _logged(text)
    if made is not None:
        return made
    raise recognised(text) or _unknown()


def _unknown() -> UnknownProfileError:
    return UnknownProfileError("the file is in no profile format that fleet knows", hint=_GIVE)


def _is_bench_csv(text: str) -> bool:
    first = text.lstrip("\ufeff").partition("\n")[0]
    return "n_prompt" in first and "avg_ts" in first


_BY_TEXT: tuple[tuple[Callable[[str], bool], Callable[[str], Profile | list[Profile]]], ...] = (
    (qnn.is_csv, qnn.read),
    (genie.is_printed, genie.read_printed),
    (llama_cpp.is_sql, llama_cpp.read_sql),
    (_is_bench_csv, llama_cpp.read_csv),
    (executorch.is_log, executorch.read_log),
    (lambda text: "eval time =" in text, llama_cpp.read_log),
    (lambda text: _TABLE.search(text) is not None, llama_cpp.read_table),
    (mllm.is_output, mllm.read),
)


def _no_json(text: str, error: Exception) -> ProfileError:
    fault = json_fault(text, error)
    return ProfileError(f"the file {fault.bare}", line=fault.line, hint=fault.hint)
