"""JSON of qnn-profile-viewer's JSON reader: the events of the CSV, as a tree.

`{"metadata": {"appVersion": "v2.49.0.260730134355"}, "messages": [{"method": "BACKEND_EXECUTE",
"profilingEvents": [{"identifier", "unit": "MICROSEC", "type", "value", "sub-events": []}]}]}`
(deployment.md 4.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fleet.model.errors import ProfileError
from fleet.profiles.formats.base import Profile, finite
from fleet.profiles.formats.qnn import Event, profile_of


def read(data: dict[str, Any]) -> Profile:
    """The profile, with the version of the runtime that wrote it. Raises ProfileError."""
    messages = data.get("messages")
    if not isinstance(messages, list):
        raise ProfileError("messages: no list, so this is no JSON of qnn-profile-viewer")
    events = [event for message in messages for event in _message(message)]
    metadata = data.get("metadata")
    version = metadata.get("appVersion") if isinstance(metadata, dict) else None
    runtime = version.removeprefix("v") if isinstance(version, str) else ""
    return replace(profile_of(events, "qnn-json"), runtime=runtime)


def _message(message: object) -> Iterator[Event]:
    if isinstance(message, dict) and isinstance(message.get("profilingEvents"), list):
        for event in message["profilingEvents"]:
            yield from _event(event, "")


def _event(event: object, parent: str) -> Iterator[Event]:
    if not isinstance(event, dict):
        return
    identifier = str(event.get("identifier", ""))
    message = str(event.get("type", ""))
    unit = str(event.get("unit", "")).upper()
    if parent and (unit == "CYCLES" or message == "NODE") and "OpId_" in identifier:
        message = "NODE"
    yield Event(message, identifier, finite(event.get("value")), unit, parent)
    below = event.get("sub-events")
    for one in below if isinstance(below, list) else ():
        yield from _event(one, parent or identifier)
