"""CSV of qnn-profile-viewer and of ONNX Runtime's QNN provider: the same columns.

`Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier`
(deployment.md 4.2; qnn_profile_serializer.cc of onnxruntime). `Performance Estimates` are
what the compiler simulated, so their names begin with `estimated_`: they are no measurements.
Operations (`NODE`, cycles) repeat for each inference; a CSV does not name its graphs.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from fleet.model.errors import ProfileError
from fleet.model.record import Measure, Metrics, Op
from fleet.profiles.formats.base import Profile, Sources, mean, number, slug

COLUMNS = ("Message", "Time", "Unit of Measurement", "Event Level", "Event Identifier")
_ROOT = "ROOT"
_ESTIMATES = "Performance Estimates"
_HEADINGS = ("Mode", "Bandwidth Stats", "HTP ID", "Missing Ops")  # of estimates, with no number
_MICROSECONDS = {"US": 1.0, "MICROSEC": 1.0, "MS": 1000.0, "NS": 0.001, "S": 1e6, "SEC": 1e6}
_NAMES = {
    "QNN (load binary) time": "load",
    "Accelerator (load binary) time": "accelerator_load",
    "QNN (init) time": "init",
    "QNN (finalize) time": "finalize",
    "QNN (deinit) time": "deinit",
    "QNN (execute) time": "execute",
    "RPC (execute) time": "rpc_execute",
    "QNN accelerator (execute) time": "qnn_accelerator_execute",
    "Accelerator (execute) time": "accelerator_execute",
    "Accelerator (execute excluding wait) time": "accelerator_execute_without_wait",
    "Accelerator (execute) time (cycles)": "accelerator_execute",
    "Number of HVX threads used": "hvx_threads",
    "Num times yield occured": "yields",
    "Time for initial VTCM acquire": "vtcm_acquire",
    "Time for HVX + HMX power on and acquire": "power_on",
}
_OP = re.compile(r"(?P<name>.*?)[: ]?OpId_(?P<id>\d+)(?: \(cycles\))?")
_SIMULATED = re.compile(r"Simulated \((?P<what>.*?)(?: \((?P<side>lower|upper) estimate\))?\)")


@dataclass(frozen=True)
class Event:
    """One row. `value` None: the source has no number there (UNKNOWN). `parent` is the row of
    the top level that it stands under, "" on that level.
    """

    message: str
    identifier: str
    value: float | None
    unit: str
    parent: str = ""


def parse_csv(text: str) -> Mapping[str, Measure]:
    """The numbers of `read` by name. Raises ProfileError."""
    return read(text).metrics.others


def read(text: str) -> Profile:
    """Means over the inferences by name (µs, cycles, bytes, counts), operations, sources.

    Raises ProfileError: other columns, cut off, a decimal comma.
    """
    return profile_of(list(_rows(text)), "qnn-csv")


def profile_of(events: list[Event], kind: str) -> Profile:
    """The profile that rows make, from whichever file they come."""
    sources, values = Sources(), dict[tuple[str, str], list[float]]()
    for event in events:
        if event.value is None:
            continue
        if event.message != "NODE":
            place = f"{event.parent} / " if event.parent else ""
            sources.add(place + event.identifier, event.value, event.unit)
        named = _named(event)
        if named is not None:
            values.setdefault(named[:2], []).append(named[2])
    others = {name: Measure(mean(found), unit) for (name, unit), found in values.items()}
    metrics = replace(Metrics(others=others), source=sources.found)
    problems = () if others else ("cut: the profile holds no number",)
    return Profile(kind, metrics, _ops(events), problems=problems)


def _rows(text: str) -> Iterator[Event]:
    lines = text.splitlines()
    header = lines[0].lstrip("\ufeff").split(",") if lines else []
    if any(name not in header for name in COLUMNS):
        if ";" in (lines[0] if lines else "") and "Event Identifier" in lines[0]:
            raise ProfileError(
                "the columns are parted with ';': a spreadsheet saved it in its own locale",
                line=1,
                hint="qnn-profile-viewer --input_log LOG --output NEW.csv",
            )
        raise ProfileError("this is no CSV of qnn-profile-viewer: its columns are not there")
    if not text.endswith("\n"):
        raise ProfileError(
            "the last line has no end: the file is cut off",
            line=len(lines),
            hint="fetch it from the device again (a whole file of an editor: add the line end)",
        )
    places = [header.index(name) for name in COLUMNS]
    rows = csv.reader(lines[1:], strict=True)
    parent = ""
    try:
        for row in rows:
            if not row:
                continue
            line = rows.line_num + 1
            if len(row) != len(header):
                raise _ragged(len(row), len(header), line)
            message, time, unit, level, identifier = (row[place].strip() for place in places)
            top = level in {"", _ROOT}
            parent = identifier if top else parent
            yield Event(message, identifier, _value(time, line), unit, "" if top else parent or "?")
    except csv.Error as error:
        raise ProfileError(f"the CSV is broken: {error}", line=rows.line_num + 1) from error


def _ragged(have: int, wanted: int, line: int) -> ProfileError:
    if have > wanted:
        return ProfileError(
            f"{have} values for {wanted} columns: a decimal comma?",
            line=line,
            hint="LC_ALL=C qnn-profile-viewer --input_log LOG --output NEW.csv",
        )
    return ProfileError(
        f"{have} values for {wanted} columns: the line is cut off",
        line=line,
        hint="fetch it from the device again",
    )


def _value(text: str, line: int) -> float | None:
    """None for what has no digit in it (UNKNOWN, of traces), or is below 0."""
    found = number(text)
    if found is None and any(sign.isdigit() for sign in text):
        raise ProfileError(
            f"Time '{text[:40]}' is no number with a decimal point",
            line=line,
            hint="LC_ALL=C qnn-profile-viewer --input_log LOG --output NEW.csv",
        )
    return found if found is not None and found >= 0 else None


def _named(event: Event) -> tuple[str, str, float] | None:
    """(name, unit, value) of a number that goes into the metrics."""
    value, text = event.value or 0.0, event.identifier
    if event.parent == _ESTIMATES:
        if text.startswith(_HEADINGS):
            return None
        found = _SIMULATED.fullmatch(text)
        what = found["what"].removesuffix(" us").removesuffix(" cycles") if found else text
        side = f"_{found['side']}" if found and found["side"] else ""
        return _unit(f"estimated_{slug(what)}{side}", value, event.unit)
    if event.parent or text == _ESTIMATES or not slug(text):
        return None
    bare = text.removesuffix(" (cycles)").removesuffix(" time")
    return _unit(_NAMES.get(text) or slug(bare), value, event.unit)


def _unit(name: str, value: float, unit: str) -> tuple[str, str, float]:
    """The name says the unit. One that is not known stays as it is written."""
    factor, word = _MICROSECONDS.get(unit.upper()), unit.upper()
    if factor is not None:
        return f"{name}_us", "us", value * factor
    if word == "CYCLES":
        return f"{name}_cycles", "cycles", value
    if word == "BYTES":
        return f"{name}_bytes", "bytes", value
    if word == "COUNT":
        return name, "", value
    return f"{name}_{slug(unit) or 'unitless'}", unit, value


def _ops(events: list[Event]) -> tuple[Op, ...]:
    """Means over the inferences; graphs are told apart by their operations."""
    graphs: dict[tuple[tuple[str, str], ...], list[list[float]]] = defaultdict(list)
    block: list[Event] = []
    for event in [*events, Event("", "", None, "")]:
        if event.message == "NODE" and event.parent:
            if event.value is not None:
                block.append(event)
        elif block and not event.parent:
            names = tuple((one.identifier, one.unit) for one in block)
            graphs[names].append([one.value or 0.0 for one in block])
            block = []
    found: list[Op] = []
    for turn, (names, runs) in enumerate(graphs.items(), 1):
        graph = f"#{turn}" if len(graphs) > 1 else ""
        taken: dict[str, int] = {}
        for place, (identifier, unit) in enumerate(names):
            name = _op_name(identifier)
            taken[name] = taken.get(name, 0) + 1
            name = f"{name}#{taken[name]}" if taken[name] > 1 else name
            value = mean([run[place] for run in runs])
            normal, scale = _op_unit(unit)
            found.append(Op(name, value * scale, normal, graph=graph))
    return tuple(found)


def _op_unit(unit: str) -> tuple[str, float]:
    if unit.upper() in _MICROSECONDS:
        return "us", _MICROSECONDS[unit.upper()]
    return ("cycles" if unit.upper() == "CYCLES" else unit), 1.0


def _op_name(identifier: str) -> str:
    """`Relu5` of `Relu5:OpId_26 (cycles)`: the number is another one in every build."""
    found = _OP.fullmatch(identifier)
    return (found["name"] or f"OpId_{found['id']}") if found else identifier
