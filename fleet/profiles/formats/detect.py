"""Which format a file has, by what stands in it; names and suffixes do not matter."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleet.config.yamlpos import parse
from fleet.model.errors import InputError, ProfileError, UnknownProfileError, reason
from fleet.profiles.formats import executorch, genie, llama_cpp, mllm, qnn, qnn_json, tools
from fleet.profiles.formats.base import Profile, decoded, json_fault

MOST_BYTES = 256 << 20
KNOWN = (
    "record.json and JSON Lines of fleet, Genie profile JSON, CSV or JSON of qnn-profile-viewer, "
    "CSV of onnxruntime-qnn, llama-bench (json, jsonl, csv, table), logs of llama-completion, "
    "ExecuTorch and mllm, etdump, the text of qnn-profile-viewer, a profile and perf.yaml of AI "
    "Hub, a profile of ONNX Runtime, benchmark_model of LiteRT, winml perf, geniex-bench, MNN"
)
Read = Profile | list[Profile] | list[dict[str, Any]]
_BY_KEY: dict[str, Callable[[dict[str, Any]], Profile | list[Profile]]] = {
    "components": genie.read_data,
    "messages": qnn_json.read,
    "n_prompt": lambda data: llama_cpp.read_rows([data]),
}
_TABLE = re.compile(r"\| *(?:test|llm_demo) *\| *(?:t/s|speed\(tok/s\)) *\|")
_LOGGED = (b"QNN", b"Accelerator (", b"numInferences")  # the last is all that level `client` has
_VIEWER = "qnn-profile-viewer --input_log LOG --output NEW.csv (then import NEW.csv)"
_GIVE = f"give a file of one of these formats: {KNOWN}"


def read(data: bytes) -> Read:
    """What the file says: a profile, one for each of its rows, or the plain data of records of
    fleet.

    Raises ProfileError with the place, the cause and the cure.
    """
    if not data.strip():
        raise ProfileError("the profile file is empty", hint="copy the file from the device again")
    if b"ED00" in {data[4:8], data[8:12]}:  # file_identifier of etdump.fbs; its size may come first
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
    """One JSON object, or one on each line."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        lines = _lines(text)
        if lines is None:
            raise _no_json(text, error) from error
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
    made = tools.read_object(data)
    if made is not None:
        return made
    keys = ", ".join(map(str, list(data)[:5]))
    raise tools.recognised(text) or UnknownProfileError(
        f"the file is JSON (its first keys: {keys}), but in no profile format that fleet knows",
        hint=_GIVE,
    )


def _lines(text: str) -> list[dict[str, Any]] | None:
    """The objects of JSON Lines; None where the first line is no object of its own.

    Raises ProfileError for a later line that is none.
    """
    found: list[dict[str, Any]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            one = json.loads(line)
        except (ValueError, RecursionError) as error:
            if not found:
                return None
            raise ProfileError(
                f"this line of the file is not valid JSON: {reason(error)}",
                line=number,
                hint="export or copy the file again",
            ) from error
        if not isinstance(one, dict):
            raise ProfileError(
                "this line of the file is not a JSON object",
                line=number,
                hint="export or copy the file again",
            )
        found.append(one)
    return found or None


def _list(text: str) -> Read:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise (tools.recognised(text) or _no_json(text, error)) from error
    rows = [item for item in data if isinstance(item, dict)]
    if rows and len(rows) == len(data) and "run_id" in rows[0]:
        return rows
    if rows and "n_prompt" in rows[0]:
        return llama_cpp.read_rows(rows)
    made = tools.read_events(rows)
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
    return tools.read_perf_yaml(data) if isinstance(data, dict) else None


def _text(text: str) -> Profile | list[Profile]:
    for belongs, reader in _BY_TEXT:
        if belongs(text):
            return reader(text)
    made = tools.read_text(text) or _perf_yaml(text)
    if made is not None:
        return made
    raise tools.recognised(text) or UnknownProfileError(
        "the file is in no profile format that fleet knows", hint=_GIVE
    )


def _is_bench_csv(text: str) -> bool:
    first = text.lstrip("\ufeff").partition("\n")[0]
    return "n_prompt" in first and "avg_ts" in first


_BY_TEXT: tuple[tuple[Callable[[str], bool], Callable[[str], Profile | list[Profile]]], ...] = (
    (qnn.is_csv, qnn.read),
    (_is_bench_csv, llama_cpp.read_csv),
    (executorch.is_log, executorch.read_log),
    (lambda text: "eval time =" in text, llama_cpp.read_log),
    (lambda text: _TABLE.search(text) is not None, llama_cpp.read_table),
    (mllm.is_output, mllm.read),
)


def _no_json(text: str, error: Exception) -> ProfileError:
    fault = json_fault(text, error)
    return ProfileError(f"the file {fault.said}", line=fault.line, hint=fault.hint)
