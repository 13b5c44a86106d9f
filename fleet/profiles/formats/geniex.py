"""The reader of the JSON of geniex-bench, schema versions 1 to 6, and of its accuracy mode's text.

Sources in qualcomm/GenieX: sdk/benchmark/benchmark.c from 4ed84f9a (version 1) to 413d78ab (version
4), sdk/benchmark/report.c 92c07df (version 6); notes/run.md explains the times. Each version only
adds keys: mean and deviation (2), n_prompt and the versions of the plugins (3), the time of the
media encoder (4), top_p, n_ubatch, power_mode and qairt_lib (5 and 6).

For the plugin qairt geniex-bench counts the padded prompt, a multiple of 128 tokens (since
7ad20636, within version 3). The rate of the prompt is then that of the padded prompt. Such numbers
are named `padded_prompt_tokens` and `padded_prompt_tps`, because Genie counts only real tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from fleet.model.errors import ProfileError
from fleet.model.metrics import ANSWER, PROMPT
from fleet.model.record import Measure, Metrics
from fleet.profiles.formats.base import UNPROVEN, Profile, finite

CHUNK = 128  # tokens; QAIRT_PREFILL_CHUNK of sdk/benchmark/run.c
_NPU = re.compile(r"npu|HTP\d+(,HTP\d+)*", re.IGNORECASE)
# Key of a run → name, unit, factor.
_RUN = {
    "ttft_us": ("ttft_ms", "ms", 1e-3),
    "prompt_time_us": (PROMPT.time, "ms", 1e-3),
    "decode_time_us": (ANSWER.time, "ms", 1e-3),
    "media_us": ("media_ms", "ms", 1e-3),
    "prompt_tokens": (PROMPT.tokens, "", 1.0),
    "gen_tokens": (ANSWER.tokens, "", 1.0),
    "prefill_tps": (PROMPT.rate, "tok/s", 1.0),
    "decode_tps": (ANSWER.rate, "tok/s", 1.0),
}
_AGGREGATE = {
    "ttft_ms": ("ttft_ms", "ms"),
    "media_ms": ("media_ms", "ms"),
    "prompt_tokens": (PROMPT.tokens, ""),
    "gen_tokens": (ANSWER.tokens, ""),
    "prefill_tps": (PROMPT.rate, "tok/s"),
    "decode_tps": (ANSWER.rate, "tok/s"),
}


def parsed(text: str) -> dict[str, Any]:
    """Return the file as data. Raises ProfileError if it is not a file of geniex-bench."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProfileError(
            "the JSON file of geniex-bench is damaged", hint="run geniex-bench again"
        ) from error
    if not isinstance(data, dict) or not isinstance(data.get("agg"), Mapping):
        raise ProfileError(
            "the JSON file of geniex-bench has no results (`agg`)", hint="run geniex-bench again"
        )
    return data


def metrics_of_run(data: Mapping[str, Any], run: Mapping[str, Any]) -> Metrics:
    """Return the numbers of one of the `runs` of the file; times in ms."""
    numbers = {
        name: Measure(value * factor, unit)
        for key, (name, unit, factor) in _RUN.items()
        if (value := finite(run.get(key))) is not None
    }
    return _metrics(data, numbers)


def metrics_of_all(data: Mapping[str, Any]) -> Metrics:
    """Return the medians over all runs of the file, as geniex-bench computed them."""
    numbers = {}
    for key, (name, unit) in _AGGREGATE.items():
        value = data["agg"].get(key)
        value = value.get("median", value.get("mean")) if isinstance(value, Mapping) else value
        if (known := finite(value)) is not None:
            numbers[name] = Measure(known, unit)
    return _metrics(data, numbers)


def _metrics(data: Mapping[str, Any], numbers: dict[str, Measure]) -> Metrics:
    source = dict(numbers)
    if numbers.get("media_ms") == Measure(0.0, "ms"):
        del numbers["media_ms"]  # a run with text only
    tokens = numbers.get(PROMPT.tokens)
    if _padded(data, None if tokens is None else tokens.value):
        for name in (PROMPT.tokens, PROMPT.rate):
            if name in numbers:
                numbers[f"padded_{name}"] = numbers.pop(name)
    return replace(Metrics.of(numbers), source=source)


def _padded(data: Mapping[str, Any], tokens: float | None) -> bool:
    """Return True if the tokens of the prompt are counted with padding.

    In version 3 a multiple of the chunk may be counted either way, so the number is not used as
    that of the prompt itself.
    """
    if data.get("plugin") != "qairt" or str(data.get("schema_version")) in {"1", "2"}:
        return False
    return tokens is None or tokens % CHUNK == 0


def runs_of(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the measured runs of the file."""
    runs = data.get("runs")
    return [run for run in runs if isinstance(run, Mapping)] if isinstance(runs, list) else []


def device_problem(data: Mapping[str, Any]) -> str:
    """Return why the numbers may not be of the NPU; "" for a model pinned to the NPU.

    With `hybrid` llama.cpp chooses a device for each tensor, and falls back to the CPU silently.
    """
    device = str(data.get("device") or "").lower()
    if data.get("plugin") == "qairt" or _NPU.fullmatch(device):
        return ""  # qairt forces every other device to the NPU (sdk/src/device.cpp)
    if device in {"cpu", "gpu"}:
        return f"cpu-fallback: geniex-bench ran on {device}"
    return UNPROVEN.format(tool="geniex-bench")


def read(data: Mapping[str, Any]) -> Profile | list[Profile]:
    """Return a profile of each measured run, or of the medians if the file has no runs.

    Raises ProfileError for a file without numbers.
    """
    problem, name = device_problem(data), str(data.get("cell_id") or "")
    runs = runs_of(data)
    made = [metrics_of_run(data, run) for run in runs] or [metrics_of_all(data)]
    if not any(metrics.source for metrics in made):
        raise ProfileError(
            "the geniex-bench file contains no times",
            hint="copy the whole file from the tool again",
        )
    version = str(data.get("qairt_version") or "") if data.get("plugin") == "qairt" else ""
    marks = tuple(filter(None, (name, f"qairt plugin {version}" if version else "")))
    profiles = [
        Profile(
            "geniex-bench",
            metrics,
            runner="geniex",
            problems=(problem,) if problem else (),
            marks=marks,
        )
        for metrics in made
    ]
    return profiles[0] if len(profiles) == 1 else profiles


def texts(stdout: str) -> list[str]:
    """Return the generated texts of --accuracy, one for each prompt.

    Each line of a text begins with `[gen ] `. If there are several prompts, `[sep ] prompt 1/2`
    comes before the text of each one.
    """
    paragraphs: list[list[str]] = []
    for line in stdout.splitlines():
        if line.startswith("[sep ] ") or (not paragraphs and line.startswith("[gen ] ")):
            paragraphs.append([])
        if line.startswith("[gen ] "):
            paragraphs[-1].append(line.removeprefix("[gen ] "))
    return ["\n".join(lines) for lines in paragraphs]
