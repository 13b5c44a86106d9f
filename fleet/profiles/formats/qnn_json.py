"""The reader of JSON of qnn-profile-viewer: the events of the CSV, as a tree.

The format is `{"metadata": {"backendVersion": "v2.51.0.260929181845"}, "messages": [{"method":
"BACKEND_EXECUTE", "profilingEvents": [{"identifier", "unit": "MICROSEC", "type", "value",
"sub-events": []}]}]}` (docs/sources/deployment.md 5; the viewer of 2.25). The times that
qnn-net-run took itself are not in it, except the total of all inferences.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from msgspec import structs

from fleet.model.errors import ProfileError
from fleet.model.record import Measure, Metrics
from fleet.profiles.formats.base import RATE, RATE_UNIT, Profile, finite, json_fault
from fleet.profiles.formats.qnn_events import ProfileEvent, profile_of


def loaded(text: str) -> Profile:
    """Return the profile of the text of a file, as `read` does. Raises ProfileError with the
    line.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        fault = json_fault(text, error)
        raise ProfileError(f"the profile {fault.bare}", line=fault.line, hint=fault.hint) from error
    if not isinstance(data, dict):
        raise ProfileError(
            "the file is not JSON of qnn-profile-viewer: it contains no JSON object",
            hint="run qnn-profile-viewer on the log again",
        )
    return read(data)


def read(data: dict[str, Any]) -> Profile:
    """Return the profile, with the version of the runtime that wrote it. Raises ProfileError."""
    messages = data.get("messages")
    if not isinstance(messages, list):
        raise ProfileError(
            "the file is not JSON of qnn-profile-viewer: the list `messages` is missing",
            hint="run qnn-profile-viewer on the log again",
        )
    events = [event for message in messages for event in _message(message)]
    made = profile_of(events, "qnn-json")
    return replace(made, runtime=_runtime(data.get("metadata")), metrics=_with_rate(made.metrics))


def _runtime(metadata: object) -> str:
    """Return the version of the backend, such as `2.51.0.260929181845`, else of the program."""
    for key in ("backendVersion", "appVersion"):
        version = metadata.get(key) if isinstance(metadata, dict) else None
        if isinstance(version, str):
            return version.removeprefix("v").partition("_")[0]
    return ""


def _with_rate(metrics: Metrics) -> Metrics:
    """Return the metrics with a rate in place of `numInferences` and the total `duration`."""
    others = dict(metrics.others)
    count, took = others.pop("numinferences", None), others.pop("duration_us", None)
    if count is not None and took is not None and took.value > 0:
        others[RATE] = Measure(count.value / took.value * 1e6, RATE_UNIT)
    return structs.replace(metrics, others=others)


def _message(message: object) -> Iterator[ProfileEvent]:
    if isinstance(message, Mapping) and isinstance(message.get("profilingEvents"), list):
        method = str(message.get("method", "")).partition("_")[2]  # without BACKEND, APP
        for event in message["profilingEvents"]:
            yield from _event(event, "", method)


def _event(event: object, parent: str, method: str) -> Iterator[ProfileEvent]:
    if not isinstance(event, dict):
        return
    identifier = str(event.get("identifier", ""))
    unit = str(event.get("unit", "")).upper()
    kind = "NODE" if parent and event.get("type") == "NODE" else method
    yield ProfileEvent(kind, identifier, finite(event.get("value")), unit, parent)
    below = event.get("sub-events")
    for nested in below if isinstance(below, list) else ():
        yield from _event(nested, parent or identifier, method)
