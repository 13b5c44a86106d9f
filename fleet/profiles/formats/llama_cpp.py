"""llama.cpp: `llama-bench -o json|jsonl|csv|md`, and the times that llama-completion prints.

docs/sources/deployment.md 5; fields of `test` in tools/llama-bench/llama-bench.cpp,
common_perf_print in common/ and docs/backend/snapdragon/README.md of ggml-org/llama.cpp.

`Hexagon Arch version` in a log says that the Hexagon backend was loaded, which it is with
`--device none` and `--device GPUOpenCL` too. Where a run was is in the rows of llama-bench, and in
the log of llama-completion, from level 4 on, as the buffers that hold the weights.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from fleet.model.errors import ProfileError
from fleet.model.metrics import ANSWER, PROMPT
from fleet.model.record import Measure, Metrics
from fleet.profiles.formats.base import Profile, Sources, finite, measured, number

_WEIGHTS = " model buffer size ="
_HTP = re.compile(r"HTP[0-9]+")
_LIST = re.compile(r"^\[", re.MULTILINE)  # of JSON, not of `ggml-hex: FASTRPC_GET_DOMAINS[0]`
_LAST = " total time ="
_NUMBER = r"(\d{1,15}(?:\.\d{1,15})?)"
_EVAL = re.compile(
    rf"(prompt eval|eval) time\s*=\s*{_NUMBER} ms /\s*(\d{{1,15}}) (?:tokens|runs)"
    rf".*?{_NUMBER} tokens per second"
)
_LOAD = re.compile(rf"load time\s*=\s*{_NUMBER} ms")
_TEST = re.compile(r"(pp|tg)(\d{1,9})")


def bench(text: str) -> dict[str, Measure]:
    """Rows of `llama-bench -o json`: one with only a prompt, one with only generation.

    {} for what is no such output; a log may stand before it.
    """
    return _rates(_listed(text))


def _listed(text: str) -> list[Any]:
    start = _LIST.search(text)
    try:
        rows = json.loads(text[start.start() :]) if start else []
    except (ValueError, RecursionError):
        return []
    return rows if isinstance(rows, list) else []


def bench_elsewhere(text: str, device: str) -> str:
    """Why rows of `llama-bench -o json` are not of the NPU; "" where all are of `device`.

    `device` as --device of llama-completion takes it: HTP0, or HTP0,HTP1.
    """
    wanted = set(_HTP.findall(device))
    for row in _listed(text):
        if not isinstance(row, dict):
            continue
        if "devices" not in row or "backends" not in row:
            return (
                "cpu-fallback: this llama-bench does not print the devices it used, so fleet "
                f"cannot tell whether {device} was used; build a newer llama-bench"
            )
        devices, backends = str(row["devices"]), str(row["backends"])
        used = set(_HTP.findall(devices))
        if not wanted or not wanted <= used or "HTP" not in backends.split(","):
            return (
                f"cpu-fallback: llama-bench ran on devices {devices} with backends {backends} "
                f"instead of {device}"
            )
    return ""


def timings(text: str) -> dict[str, Measure]:
    """`prompt eval time = 1.0 ms / 5 tokens (..., 9.0 tokens per second)` and its like."""
    found: dict[str, Measure] = {}
    load = _LOAD.search(text)
    if load:
        found["init_ms"] = Measure(float(load[1]), "ms")
    for kind, took, count, rate in _EVAL.findall(text):
        phase = ANSWER if kind == "eval" else PROMPT
        found |= measured(phase, int(count), float(rate), float(took))
    return found


def whole(text: str) -> bool:
    """The log goes to its end. llama.cpp can lose the last of what it prints, with status 0: its
    log is written by a thread that is not waited for (ggml-org/llama.cpp#25504).
    """
    return any(_LAST in line and "_print:" in line for line in text.splitlines())


def elsewhere(text: str, device: str = "") -> str:
    """Why a run with this log was not on the NPU; "" where weights of it were on all of `device`,
    as --device takes it (HTP0,HTP1), or on any where nobody says which was asked for.
    """
    before = [line.partition(_WEIGHTS)[0] for line in text.splitlines() if _WEIGHTS in line]
    held = sorted({words[-1] for words in map(str.split, before) if words})
    used = {found[0] for buffer in held if (found := _HTP.match(buffer))}
    wanted = set(_HTP.findall(device)) if device else used
    if wanted and wanted <= used:
        return ""
    asked = device or "HTP0"
    why = f"cpu-fallback: the log shows no weights on {asked} (no line `{asked} model buffer size`)"
    if used:
        return f"cpu-fallback: the weights are on {', '.join(held)} instead of {asked}"
    if held:
        return f"{why}; the weights are on {', '.join(held)}"
    return f"{why}; run llama.cpp with `-lv 4`, which prints where the weights are"


def read_rows(rows: object) -> Profile:
    """A profile of the rows of JSON. Raises ProfileError for several models or tests of a kind:
    one record is one run.
    """
    return _profile(_rates(rows, strict=True), "llama-bench")


def read_csv(text: str) -> Profile:
    """A profile of `-o csv`. Raises ProfileError."""
    try:
        rows = list(csv.DictReader(text.splitlines(), strict=True))
    except csv.Error as error:
        raise ProfileError(
            f"the CSV file of llama-bench is damaged: {error}",
            hint="write it again with llama-bench -o csv",
        ) from error
    made = [
        {**row, **{key: number(row.get(key) or "") for key in ("n_prompt", "n_gen", "avg_ts")}}
        for row in rows
    ]
    return _profile(_rates(made, strict=True), "llama-bench-csv")


def read_table(text: str) -> Profile:
    """A profile of the table that llama-bench prints: `| ... | pp512 | 210.50 ± 2.10 |`."""
    rows: list[dict[str, Any]] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        test = next((found for cell in cells if (found := _TEST.fullmatch(cell))), None)
        rate = number(cells[-1].partition("±")[0].strip())
        if line.lstrip().startswith("|") and test and rate is not None:
            key = "n_prompt" if test[1] == "pp" else "n_gen"
            rows.append({"n_prompt": 0, "n_gen": 0, key: int(test[2]), "avg_ts": rate})
    return _profile(_rates(rows, strict=True), "llama-bench-table")


def read_log(text: str) -> Profile:
    """A profile of the times of llama-completion."""
    made = _profile(timings(text), "llama.cpp-log")
    said = elsewhere(text)
    return replace(made, problems=(*made.problems, said)) if said else made


def _profile(found: Mapping[str, Measure], kind: str) -> Profile:
    if not found:
        raise ProfileError(
            "the file contains no rates of llama.cpp (tokens per second)",
            hint="write it with llama-bench -o json",
        )
    sources = Sources()
    for name, measure in found.items():
        sources.add(name, measure.value, measure.unit)
    metrics = replace(Metrics.of(found), source=sources.found)
    return Profile(kind, metrics, runner="llama.cpp")


def _rates(rows: object, *, strict: bool = False) -> dict[str, Measure]:
    found: dict[str, Measure] = {}
    for row in rows if isinstance(rows, Iterable) else ():
        if not isinstance(row, dict):
            continue
        prompt, generated, rate = (finite(row.get(key)) for key in ("n_prompt", "n_gen", "avg_ts"))
        if rate is None or prompt is None or generated is None:
            continue
        if prompt and not generated:
            made = measured(PROMPT, prompt, rate)
        elif generated and not prompt:
            made = measured(ANSWER, generated, rate)
        else:
            continue
        if strict and not found.keys().isdisjoint(made):
            raise ProfileError(
                "the file contains several prompt or generation tests, but fleet reads only "
                "one of each",
                hint="run llama-bench again with a single -p value and a single -n value",
            )
        found |= made
    return found
