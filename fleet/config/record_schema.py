"""The JSON Schema of a record, made from its dataclasses.

`python -m fleet.config.record_schema > fleet/data/schemas/record.json` makes the file anew.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic import TypeAdapter

from fleet.model.metrics import METRICS
from fleet.model.record import SCHEMA, Record

NEEDED = ("run_id", "host", "metrics")
_SAID = {
    "Record": {
        "run_id": "Id of the run; records of one run have the same.",
        "host": "Device, by its name in the inventory; empty where it is not known.",
        "name": "Name of the playbook, which is that of the release.",
        "release": "Id of the release: a hash over its files and settings.",
        "runner": "genie, qnn-net-run, mllm, executorch, llama.cpp, exec, or another one.",
        "repeat": "Number of the repeat, from 0.",
        "warmup": "True for a warm-up, which never counts.",
        "started": "UTC, as 2026-11-20T22:45:01Z; empty where it is not known.",
        "seconds": "Time of the whole run in seconds by the clock of the workstation.",
        "status": "Exit status of the runner.",
        "metrics": "What was measured.",
        "finish": "eos, token-limit, or null where it is not known.",
        "problems": "Why the run does not count; empty where it does.",
        "emulated": "True for no NPU: its numbers are no speed. Null where nobody said it.",
        "argv": "What was started on the device.",
        "env": "Environment of the runner on the device.",
        "prompt_sha256": "sha256 of the prompt.",
        "files": "Files of the release: name to sha256.",
        "origin": "Where it comes from: runtime, build_id, target, bundle; imported, format.",
        "facts": "Facts of the device as of fleet facts --json.",
        "identity": "Host key or serial number that the device was known by.",
        "text": "What the model said.",
        "fleet": "Version of fleet that measured.",
        "schema": "Version of this schema; without it, 1.",
        "artifacts": "Files that were kept: name to path on the workstation.",
        "ops": "What single operations took (since schema 2).",
        "conditions": "Heat, clocks, power, load around the run (since schema 2).",
        "marks": "Remarks on a run that counts: cut, throttled, profiled (since schema 2).",
        "tags": "Words of the user (since schema 2).",
        "suite": "Answers to a suite of prompts, instead of times; null for a timed run.",
    },
    "SuiteResult": {
        "name": "Name of the suite.",
        "sha256": "Identity of its prompts and checks.",
        "asked": "Number of prompts.",
        "at_least": "Prompts that have to pass.",
        "answers": "The answers, in the order of the prompts.",
    },
    "SuiteAnswer": {
        "name": "Name of the prompt.",
        "text": "The answer without its thought.",
        "thought": "Text between <think> and </think>.",
        "faults": "Why the answer does not pass; empty where it does.",
        "finish": "eos, token-limit, or null where it is not known.",
        "generated_tokens": "Tokens of the answer.",
        "seconds": "Time of the answer.",
    },
    "Metrics": {
        **{metric.name: metric.about for metric in METRICS if metric.about},
        "others": "Numbers that only some runners have, normalised, by name.",
        "source": "The numbers as the source wrote them, under its names, in its units.",
    },
}


def made() -> dict[str, Any]:
    """The schema. Keys that it does not know are allowed: a reader passes over them."""
    body = TypeAdapter(Record).json_schema()
    for name, said in _SAID.items():
        node = body if name == "Record" else body["$defs"][name]
        for key, text in said.items():
            node["properties"][key]["description"] = text
    for node in (body, *body["$defs"].values()):
        for key in node["properties"].values():
            key.pop("title", None)
    for name in ("Measure", "Op"):
        body["$defs"][name]["required"] = ["value"]
    body["$defs"]["Sample"].pop("required")
    body["required"] = list(NEEDED)
    body["properties"]["schema"] |= {"minimum": 1, "maximum": SCHEMA}
    body["properties"]["counts"] = {
        "type": "boolean",
        "description": "True for a whole run on the NPU that is no warm-up; a reader works it out.",
    }
    title = "fleet record"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **body, "title": title}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(made(), indent=2, ensure_ascii=False) + "\n")
