"""Genie's profile JSON → metrics. Units are read, never assumed (docs/sources/deployment.md 4).

Components of all versions seen: dialog, embedding, engine (since 2.28), pipeline and node
(since 2.35). Event types and their numbers: translate...KPIsToEvents and getEventTypeString
in Genie/src/Profile.cpp of the SDK. `duration` of an event has no unit beside it; the same
file takes it from getTimeStampInUs, so it is µs.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from fleet.model.errors import ProfileError
from fleet.model.metrics import ANSWER, PROMPT
from fleet.model.record import Measure, Metrics
from fleet.profiles.formats.base import (
    PER_SECOND,
    UNPROVEN,
    Profile,
    Sources,
    finite,
    json_fault,
    mean,
    measured,
    milliseconds,
    slug,
)

# The first of these that measured something gives the metrics; numbers of the others are in
# `others` with its word before them (embedding_prompt_tps).
FAMILIES = ("GenieDialog", "GeniePipeline", "GenieEmbedding", "GenieNode", "GenieEngine")
_MEASURED = ("_query", "_execute", "_generate", "_setData")
_COUNTS = {"num-prompt-tokens": PROMPT.tokens, "num-generated-tokens": ANSWER.tokens}
_RATES = {"prompt-processing-rate": PROMPT.rate, "token-generation-rate": ANSWER.rate}
_TIMES = {
    "init-time": "init_ms",
    "time-to-first-token": "ttft_ms",
    "token-generation-time": ANSWER.time,
}
_OURS = {*_COUNTS.values(), *_RATES.values(), *_TIMES.values()}
_TOKENS = frozenset({"", "tokens", "toks"})
# genie-t2t-run prints the first words until SDK 2.24 and the second in 2.25.
_RATE = r"([0-9]{1,9}(?:\.[0-9]{1,9})?) (?:toks/sec|tokens/s)"
_INIT = re.compile(r"^Init Time: ([0-9]{1,12}) us$", re.MULTILINE)
_PRINTED = {
    phase: re.compile(
        rf"^{words}(?: Time)?: ([0-9]{{1,12}}) us(?:, (?:{words} Rate ?: )?{_RATE})?",
        re.MULTILINE | re.IGNORECASE,
    )
    for phase, words in ((PROMPT, "Prompt Processing"), (ANSWER, "Token Generation"))
}
Event = dict[str, Any]


def parse_profile(text: str) -> Metrics:
    """Metrics of a profile. Several queries: rates and times are averaged, tokens are summed.

    Raises ProfileError for text that is no Genie profile. A value with a unit that is not
    known is left out (None), not guessed; so is a sum or mean that would lack one.
    """
    return read(text).metrics


def generated_tokens(text: str) -> list[int | None]:
    """Return the number of generated tokens of each dialog query, in order; [] for no profile."""
    try:
        events = _families(loaded(text)).get("GenieDialog", [])
    except ProfileError:
        return []
    queries = [event for event in events if str(event.get("type", "")).lower().endswith("query")]
    values = [event.get("num-generated-tokens") for event in queries]
    counts = [value.get("value") if isinstance(value, dict) else None for value in values]
    return [count if isinstance(count, int) else None for count in counts]


def printed(said: str) -> Metrics:
    """Return what genie-t2t-run prints at its end, of SDKs that know no profile: times and rates.

    The product of the time and the rate is the number of tokens. The prompt has no rate in 2.25.
    """
    found: dict[str, Measure] = {}
    if init := _INIT.search(said):
        found["init_ms"] = Measure(float(init[1]) / 1000, "ms")
    for phase, pattern in _PRINTED.items():
        if match := pattern.search(said):
            took, rate = float(match[1]) / 1000, float(match[2]) if match[2] else None
            tokens = None if rate is None else round(rate * took / 1000)
            found |= measured(phase, tokens, rate, took)
    return Metrics.of(found)


def is_printed(text: str) -> bool:
    """Return whether a text is the output of genie-t2t-run with times."""
    return _PRINTED[ANSWER].search(text) is not None


def read_printed(text: str) -> list[Profile]:
    """Return the profile of each run of genie-t2t-run, which ends with the times of the answer.

    The text does not say where the model ran.
    """
    problems = (UNPROVEN.format(tool="genie-t2t-run"),)
    ends = (match.end() for match in _PRINTED[ANSWER].finditer(text))
    return [
        Profile("genie-text", printed(text[a:b]), runner="genie", problems=problems)
        for a, b in itertools.pairwise((0, *ends))
    ]


def read(text: str) -> Profile:
    """The whole profile; problems where nothing was measured. Raises ProfileError."""
    return read_data(loaded(text))


def read_data(data: dict[str, Any]) -> Profile:
    """As `read`, of the JSON object."""
    families = _families(data)
    sources, found = Sources(), dict[str, Measure]()
    for events in families.values():
        for event in events:
            _written(event, sources)
    main = _main(families)
    for family, events in families.items():
        word = "" if family == main else slug(family.removeprefix("Genie")) + "_"
        found |= {word + name: measure for name, measure in _numbers(family, events).items()}
    metrics = replace(Metrics.of(found), source=sources.found)
    return Profile("genie", metrics, runner="genie", problems=_problems(families))


def loaded(text: str) -> dict[str, Any]:
    """The JSON object of a Genie profile. Raises ProfileError with the place."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        fault = json_fault(text, error)
        raise ProfileError(f"the profile {fault.bare}", line=fault.line, hint=fault.hint) from error
    if not isinstance(data, dict) or "components" not in data:
        raise ProfileError(
            "the file is not a Genie profile: the list `components` is missing",
            hint="give the file that genie-t2t-run --profile wrote",
        )
    return data


def _families(data: dict[str, Any]) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = defaultdict(list)
    for component in _dicts(data, "components"):
        for event in _dicts(component, "events"):
            found[str(event.get("type", "")).partition("_")[0]].append(event)
    known = {family: found[family] for family in FAMILIES if family in found}
    return known | found


def _dicts(holder: object, key: str) -> Iterator[Event]:
    items = holder.get(key) if isinstance(holder, dict) else None
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict):
            yield item


def _main(families: dict[str, list[Event]]) -> str:
    measured = [name for name, events in families.items() if any(map(_is_measured, events))]
    return next(iter(measured or families), "")


def _is_measured(event: Event) -> bool:
    return str(event.get("type", "")).endswith(_MEASURED)


def _problems(families: dict[str, list[Event]]) -> tuple[str, ...]:
    events = [event for each in families.values() for event in each]
    if not events:
        return (("failed: Genie created no dialog or pipeline, so the profile contains no events"),)
    if not any(map(_is_measured, events)):
        return ("cut: Genie ended before it wrote the times of the query",)
    return ()


def _fields(event: Event) -> list[tuple[str, float | None, str]]:
    """(name, number, unit) of what stands as {value, unit}; None for what is no number."""
    return [
        (name, finite(holder["value"]), str(holder.get("unit", "?")))
        for name, holder in event.items()
        if isinstance(holder, dict) and "value" in holder
    ]


def _written(event: Event, sources: Sources) -> None:
    kind = str(event.get("type", ""))
    for name, value, unit in _fields(event):
        if value is not None:
            sources.add(f"{kind}.{name}", value, unit)
    took = finite(event.get("duration"))
    if took is not None and not kind.endswith("_free"):
        sources.add(f"{kind}.duration", took, "us")


def _numbers(family: str, events: list[Event]) -> dict[str, Measure]:
    """Normalised numbers by name. One that cannot be read takes its whole name away."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    unread: set[str] = set()
    for event in events:
        for field, value, unit in _fields(event):
            name, number, normal = _normal(field, value, unit)
            if number is None:
                unread.add(name)
            else:
                values[name, normal].append(number)
        if str(event.get("type", "")).endswith("_create") and "init-time" not in event:
            took = milliseconds(finite(event.get("duration")), "us")
            if took is not None:
                values["init_ms", "ms"].append(took)
    names = [name for name, _ in values]
    return {
        name: Measure(_together(family, name, found), unit)
        for (name, unit), found in values.items()
        if name not in unread and names.count(name) == 1
    }


def _together(family: str, name: str, found: list[float]) -> float:
    """Tokens add up, and so do the parts of a pipeline that are made one after the other."""
    summed = name in _COUNTS.values() or (family == "GenieNode" and name == "init_ms")
    return sum(found) if summed else mean(found)


def _normal(field: str, value: float | None, unit: str) -> tuple[str, float | None, str]:
    """(our name, number in our unit or None, our unit)."""
    if field in _COUNTS:
        whole = value is not None and value == int(value) and unit in _TOKENS
        return _COUNTS[field], value if whole else None, ""
    if field in _RATES:
        return _RATES[field], value if unit in PER_SECOND else None, "tok/s"
    if field in _TIMES:
        return _TIMES[field], milliseconds(value, unit), "ms"
    name, took = slug(field), milliseconds(value, unit)
    if took is not None:
        return _apart(f"{name}_ms"), took, "ms"
    if unit in PER_SECOND:
        return _apart(f"{name}_tps"), value, "tok/s"
    return _apart(name), value, unit


def _apart(name: str) -> str:
    """A field of another name is no metric of ours, even where it reads alike."""
    return f"field_{name}" if name in _OURS else name
