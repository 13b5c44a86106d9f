"""Readers for llama.cpp: `llama-bench -o json|jsonl|csv|sql|md`, and the log of llama-completion.

Sources: docs/sources/deployment.md 5; fields of `test` in tools/llama-bench/llama-bench.cpp,
common_perf_print in common/ and docs/backend/snapdragon/README.md of ggml-org/llama.cpp.

The line `Hexagon Arch version` in a log only shows that the Hexagon backend was loaded. That also
happens with `--device none` and `--device GPUOpenCL`. The rows of llama-bench name the devices of
the run. The log of llama-completion shows them, from level 4 on, as the buffers that hold the
weights.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from msgspec import structs

from fleet.model.errors import ProfileError
from fleet.model.metrics import ANSWER, PERPLEXITY, PROMPT
from fleet.model.record import Measure, Metrics
from fleet.profiles.formats.base import UNPROVEN, Profile, Sources, finite, measured, number

_WEIGHTS = " model buffer size ="
_HTP = re.compile(r"HTP[0-9]+")
_LIST = re.compile(
    r"^\[", re.MULTILINE
)  # the start of JSON, but not of `ggml-hex: FASTRPC_GET_DOMAINS[0]`
_LAST = " total time ="
_NUMBER = r"(\d{1,15}(?:\.\d{1,15})?)"
_EVAL = re.compile(
    rf"(prompt eval|eval) time\s*=\s*{_NUMBER} ms /\s*(\d{{1,15}}) (?:tokens|runs)"
    rf".*?{_NUMBER} tokens per second"
)
# llama-perplexity (tools/perplexity) averages over the second half of each window of the context.
_PERPLEXITY = re.compile(rf"^(?:[\d.]+ I )?Final estimate: PPL = {_NUMBER}", re.MULTILINE)
_LOAD = re.compile(rf"load time\s*=\s*{_NUMBER} ms")
_TEST = re.compile(
    r"(?:pp(?P<n_prompt>\d{1,9}))?\+?(?:tg(?P<n_gen>\d{1,9}))?(?: *@ *d(?P<n_depth>\d{1,9}))?"
)
_DEMO = re.compile(r"prompt=(?P<n_prompt>\d{1,9})<br>decode=(?P<n_gen>\d{1,9})")
_COUNTS, _BOTH = ("n_prompt", "n_gen", "n_depth"), "speed(tok/s)"
_OF_MNN = {"modelSize", "precision"}


def bench(text: str) -> dict[str, Measure]:
    """Return the rates of `llama-bench -o json`: a row with only a prompt, one with only
    generation.

    Returns {} for other text; a log may precede the JSON.
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
    """Return why rows of `llama-bench -o json` are not of the NPU; "" if all are of `device`.

    `device` has the form of --device of llama-completion: HTP0, or HTP0,HTP1.
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
    """Return the times of a log of llama.cpp, and the perplexity of llama-perplexity; {} without.

    A line is `prompt eval time = 1.0 ms / 5 tokens (..., 9.0 tokens per second)`.
    """
    numbers: dict[str, Measure] = {}
    load = _LOAD.search(text)
    if load:
        numbers["init_ms"] = Measure(float(load[1]), "ms")
    estimate = _PERPLEXITY.search(text)
    if estimate:
        numbers[PERPLEXITY] = Measure(float(estimate[1]))
    for kind, took, count, rate in _EVAL.findall(text):
        phase = ANSWER if kind == "eval" else PROMPT
        numbers |= measured(phase, int(count), float(rate), float(took))
    return numbers


def whole(text: str) -> bool:
    """Return whether the log is complete.

    llama.cpp can lose the end of its output, with status 0, because it does not wait for the thread
    that writes its log (ggml-org/llama.cpp#25504).
    """
    return any(_LAST in line and "_print:" in line for line in text.splitlines())


def elsewhere(text: str, device: str = "") -> str:
    """Return why the run of a log was not on the NPU; "" if its weights were on all of `device`.

    `device` has the form of --device (HTP0,HTP1). If it is "", any NPU device is enough.
    """
    before = [line.partition(_WEIGHTS)[0] for line in text.splitlines() if _WEIGHTS in line]
    held = sorted({words[-1] for words in map(str.split, before) if words})
    used = {match[0] for buffer in held if (match := _HTP.match(buffer))}
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


def read_rows(rows: object) -> Profile | list[Profile]:
    """Return the profile of the rows of JSON, or a profile of each row. Raises ProfileError."""
    return _records(rows if isinstance(rows, Iterable) else (), "llama-bench")


def read_csv(text: str) -> Profile | list[Profile]:
    """Return the profile of `-o csv`, or a profile of each row. Raises ProfileError."""
    try:
        rows = list(csv.DictReader(text.splitlines(), strict=True))
    except csv.Error as error:
        raise ProfileError(
            f"the CSV file of llama-bench is damaged: {error}",
            hint="write it again with llama-bench -o csv",
        ) from error
    return _records(map(_counted, rows), "llama-bench-csv")


def _counted(row: Mapping[str, str]) -> dict[str, Any]:
    """Return a row of texts with its counts and its rate as numbers."""
    keys = ("n_prompt", "n_gen", "n_depth", "avg_ts")
    return {**row, **{key: number(row.get(key) or "") for key in keys}}


def is_sql(text: str) -> bool:
    """Return whether a text is the output of `llama-bench -o sql`, not one that quotes it."""
    return _SQL.match(text) is not None and "avg_ts" in text


# The table is named llama_bench since August 2025 (pull request 15003 of ggml-org/llama.cpp).
_SQL = re.compile(
    r"\s*(?:CREATE TABLE IF NOT EXISTS|INSERT INTO) (?:test|llama_bench) \(", re.ASCII
)
_INSERT = re.compile(
    r"^INSERT INTO (?:test|llama_bench) \(([\w, ]+)\)\s+VALUES\s+\((.*)\);$", re.MULTILINE
)


def read_sql(text: str) -> Profile | list[Profile]:
    """Return the profile of `-o sql`, or one of each row. No SQL is run. Raises ProfileError."""
    rows = []
    for names, values in _INSERT.findall(text):
        cells = next(csv.reader([values], quotechar="'", skipinitialspace=True))
        if len(cells) != len(names.split(", ")):
            raise ProfileError(
                "the SQL of llama-bench cannot be read: a row has more or fewer values than names",
                hint="write it again with llama-bench -o sql",
            )
        rows.append(_counted(dict(zip(names.split(", "), cells, strict=True))))
    return _records(rows, "llama-bench-sql")


def read_table(text: str) -> Profile | list[Profile]:
    """Return the profile of the table that llama-bench prints, or a profile of each row.

    A row is `| ... | pp512 @ d2048 | 210.50 ± 2.10 |`. MNN's llm_bench prints the same columns and
    more, or `| pp64+tg32 | 80.1 ± 0.2<br>12.3 ± 0.1 |` for `-pg` and `-kv`.
    """
    rows: list[dict[str, Any]] = []
    head: list[str] = []
    runner = "llama.cpp"
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if {"test", "llm_demo"} & set(cells) and {"t/s", _BOTH} & set(cells):
            head = cells
            runner = "mnn" if _OF_MNN & set(head) else runner
            continue
        row = dict(zip(head, cells, strict=False))
        name = row.get("test") or row.get("llm_demo") or "-"
        test = _TEST.fullmatch(name) or _DEMO.fullmatch(name)
        speeds = (row.get("t/s") or row.get(_BOTH, "")).split("<br>")
        rate, *more = (number(speed.partition("±")[0].strip()) for speed in speeds)
        if line.lstrip().startswith("|") and test and rate is not None:
            counts: dict[str, float] = {key: int(test.groupdict().get(key) or 0) for key in _COUNTS}
            counts |= {"decode_ts": more[0]} if more and more[0] is not None else {}
            named = {"backends": row["backend"]} if row.get("backend") else {}
            named |= {"n_threads": row["threads"]} if row.get("threads") else {}
            rows.append({"model": row.get("model", ""), "avg_ts": rate, **counts, **named})
    return _records(rows, "llama-bench-table" if runner == "llama.cpp" else "mnn-bench", runner)


def read_log(text: str) -> Profile:
    """Return the profile of the times of llama-completion."""
    made = _profile(timings(text), "llama.cpp-log")
    problem = elsewhere(text)
    return replace(made, problems=(*made.problems, problem)) if problem else made


def _profile(numbers: Mapping[str, Measure], kind: str, runner: str = "llama.cpp") -> Profile:
    if not numbers:
        raise ProfileError(
            f"the file contains no rates of {runner} (tokens per second)",
            hint="write it with llama-bench -o json",
        )
    sources = Sources()
    for name, measure in numbers.items():
        sources.add(name, measure.value, measure.unit)
    metrics = structs.replace(Metrics.of(numbers), source=sources.numbers)
    return Profile(kind, metrics, runner=runner)


def _records(
    rows: Iterable[object], kind: str, runner: str = "llama.cpp"
) -> Profile | list[Profile]:
    """Return a profile for each row.

    A prompt test and a generation test alone are one run of one model.
    """
    known = [row for row in rows if isinstance(row, dict) and _row(row)]
    tests = [(bool(finite(row["n_prompt"])), bool(finite(row["n_gen"]))) for row in known]
    plain = sorted(tests) in ([], [(True, False)], [(False, True)], [(False, True), (True, False)])
    if plain and not any(finite(row.get("n_depth")) for row in known):
        made = _profile(_rates(known), kind, runner)
        problem = next((text for row in known if (text := _not_npu(row, runner))), "")
        return replace(made, problems=(problem,) if problem else ())
    profiles = []
    several = len({str(row.get("n_threads")) for row in known}) > 1
    for row in known:
        problem = _not_npu(row, runner)
        made = _profile(_row(row), kind, runner)
        count = row.get("n_threads")
        threads = f"{count} thread{'s' * (str(count) != '1')}" if several else ""
        model = str(row.get("model") or row.get("model_type") or "")
        name = ", ".join(filter(None, [model, _test_name(row), threads]))
        profiles.append(replace(made, problems=(problem,) if problem else (), marks=(name,)))
    return profiles


def _test_name(row: Mapping[str, Any]) -> str:
    prompt, generated, depth = (
        int(finite(row.get(key)) or 0) for key in ("n_prompt", "n_gen", "n_depth")
    )
    tests = [f"pp{prompt}"] * (prompt > 0) + [f"tg{generated}"] * (generated > 0)
    return "+".join(tests) + (f" @ d{depth}" if depth else "")


def _not_npu(row: Mapping[str, Any], runner: str) -> str:
    """Return why a row is not of the NPU; "" if it is, or if the row does not say."""
    backends = row.get("backends")
    if backends is None:
        return UNPROVEN.format(tool="MNN's llm_bench") if runner == "mnn" else ""
    words = {word.strip().upper() for word in str(backends).split(",")}
    if any(word.startswith(("HTP", "HEXAGON", "NPU", "QNN")) for word in words):
        return ""
    return f"cpu-fallback: the row says that the model ran on the backend {backends}"


def _row(row: Mapping[str, Any]) -> dict[str, Measure]:
    """Return the numbers of one test; {} if the row is not a test."""
    prompt, generated, rate = (finite(row.get(key)) for key in ("n_prompt", "n_gen", "avg_ts"))
    if rate is None or prompt is None or generated is None or not (prompt or generated):
        return {}
    decode = finite(row.get("decode_ts"))
    if decode is not None:
        return measured(PROMPT, prompt, rate) | measured(ANSWER, generated, decode)
    both = bool(prompt and generated)
    numbers = measured(PROMPT, prompt, None if both else rate) if prompt else {}
    numbers |= measured(ANSWER, generated, None if both else rate) if generated else {}
    numbers |= {"mixed_tps": Measure(rate, "tok/s")} if both else {}
    depth = finite(row.get("n_depth"))
    return numbers | ({"depth_tokens": Measure(depth)} if depth else {})


def _rates(rows: object) -> dict[str, Measure]:
    """Return the numbers of all rows that are a prompt test or a generation test."""
    numbers: dict[str, Measure] = {}
    for row in rows if isinstance(rows, Iterable) else ():
        made = _row(row) if isinstance(row, dict) else {}
        if "mixed_tps" not in made:
            numbers |= made
    return numbers
