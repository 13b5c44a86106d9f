"""The reader of Genie's profile JSON. Units are read, never assumed (docs/sources/deployment.md 4).

The components of all known versions are dialog, embedding, engine (since 2.28), pipeline and node
(since 2.35). For event types and their numbers see translate...KPIsToEvents and getEventTypeString
in Genie/src/Profile.cpp of the SDK. The `duration` of an event has no unit in the file. The same
source file takes it from getTimeStampInUs, so it is in µs.
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

# The first of these with measurements gives the metrics; numbers of the others are in
# `others` with the family as a prefix (embedding_prompt_tps).
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
    """Return the metrics of a profile.

    For several queries, rates and times are averaged and tokens are summed. A value with an unknown
    unit is left out (None), not guessed. A sum or mean that would miss a value is left out too.
    Raises ProfileError for text that is not a Genie profile.
    """
    return read(text).metrics


def generated_tokens(text: str) -> list[int | None]:
    """Return the number of generated tokens of each dialog query, in order.

    Returns [] if the text is not a profile.
    """
    try:
        events = _families(loaded(text)).get("GenieDialog", [])
    except ProfileError:
        return []
    queries = [event for event in events if str(event.get("type", "")).lower().endswith("query")]
    values = [event.get("num-generated-tokens") for event in queries]
    counts = [value.get("value") if isinstance(value, dict) else None for value in values]
    return [count if isinstance(count, int) else None for count in counts]


def printed(output: str) -> Metrics:
    """Return the times and rates that genie-t2t-run of an SDK without profiles prints at its end.

    The number of tokens is the product of time and rate. In 2.25 the prompt has no rate.
    """
    numbers: dict[str, Measure] = {}
    if init := _INIT.search(output):
        numbers["init_ms"] = Measure(float(init[1]) / 1000, "ms")
    for phase, pattern in _PRINTED.items():
        if match := pattern.search(output):
            took = float(match[1]) / 1000 or None  # 0: nothing was timed
            rate = float(match[2]) if match[2] and took else None
            tokens = round(rate * took / 1000) if rate is not None and took else None
            numbers |= measured(phase, tokens, rate, took)
    return Metrics.of(numbers)


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
    """Return the complete profile; it has problems if nothing was measured. Raises ProfileError."""
    return read_data(loaded(text))


def read_data(data: dict[str, Any]) -> Profile:
    """Return the profile of the JSON object, as `read` does."""
    families = _families(data)
    sources, numbers = Sources(), dict[str, Measure]()
    for events in families.values():
        for event in events:
            _written(event, sources)
    main = _main(families)
    for family, events in families.items():
        word = "" if family == main else slug(family.removeprefix("Genie")) + "_"
        numbers |= {word + name: measure for name, measure in _numbers(family, events).items()}
    metrics = replace(Metrics.of(numbers), source=sources.numbers)
    return Profile("genie", metrics, runner="genie", problems=_problems(families))


def loaded(text: str) -> dict[str, Any]:
    """Return the JSON object of a Genie profile. Raises ProfileError with the line."""
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
    events_of: dict[str, list[Event]] = defaultdict(list)
    for component in _dicts(data, "components"):
        for event in _dicts(component, "events"):
            events_of[str(event.get("type", "")).partition("_")[0]].append(event)
    known = {family: events_of[family] for family in FAMILIES if family in events_of}
    return known | events_of


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
    """Return (name, number, unit) of each {value, unit}; the number is None if it is not valid."""
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
    """Return the normalised numbers by name. If one value is unreadable, its name is left out."""
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
        name: Measure(_together(family, name, numbers), unit)
        for (name, unit), numbers in values.items()
        if name not in unread and names.count(name) == 1
    }


def _together(family: str, name: str, values: list[float]) -> float:
    """Return the sum or the mean of values with the same name.

    Tokens are summed, and so are the times to create the parts of a pipeline, which are created one
    after the other.
    """
    summed = name in _COUNTS.values() or (family == "GenieNode" and name == "init_ms")
    return sum(values) if summed else mean(values)


def _normal(field: str, value: float | None, unit: str) -> tuple[str, float | None, str]:
    """Return (metric name, number or None, unit of the metric)."""
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
    """Return the name with a prefix if it would be the name of a metric with another meaning."""
    return f"field_{name}" if name in _OURS else name
