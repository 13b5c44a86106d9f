"""The events of QNN profiles, from any file format: their names, and their means.

The `Performance Estimates` are simulated by the compiler and not measured, so their names begin
with `estimated_`. The times that qnn-net-run took itself begin with `netrun_`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

from msgspec.structs import replace

from fleet.model.record import Measure, Metrics, Op
from fleet.profiles.formats.base import RATE, RATE_UNIT, Profile, Sources, apart, mean, slug, spread

_ESTIMATES = "Performance Estimates"
_HEADINGS = ("Mode", "Bandwidth Stats", "HTP ID", "Missing Ops")  # of estimates, without a number
_MICROSECONDS = {"US": 1.0, "MICROSEC": 1.0, "MS": 1000.0, "NS": 0.001, "S": 1e6, "SEC": 1e6}
_PHASES = {"DE-INIT": "deinit", "COMPOSE GRAPHS": "compose"}
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
class ProfileEvent:
    """A row of a profile.

    `value` is None if the source has no number (UNKNOWN). `parent` is the top-level row above the
    row, "" for a top-level row. `message` is the phase in the source (EXECUTE, DE-INIT). `graph` is
    the graph, if the source names it. `netrun` marks a time of qnn-net-run, not of the backend.
    """

    message: str
    identifier: str
    value: float | None
    unit: str
    parent: str = ""
    graph: str = ""
    netrun: bool = False

    @property
    def phase(self) -> str:
        """The phase, such as `execute` or `deinit`."""
        return _PHASES.get(self.message.upper()) or slug(self.message)

    @property
    def is_op(self) -> bool:
        """True for an operation.

        ONNX Runtime calls operations NODE; the viewer calls them by their phase.
        """
        named = self.unit.upper() == "CYCLES" and "OpId_" in self.identifier
        return bool(self.parent) and (self.message == "NODE" or named)

    @property
    def written(self) -> str:
        """The name of the number in the source."""
        if self.netrun:
            words = () if self.identifier in {"", "null"} else (self.identifier,)
            return " / ".join((f"NETRUN {self.message}", *words))
        return f"{self.parent} / {self.identifier}" if self.parent else self.identifier


def profile_of(events: list[ProfileEvent], kind: str) -> Profile:
    """Return the profile of the rows of a file in any format."""
    sources = Sources()
    values: dict[tuple[str, str], dict[tuple[str, str], list[float]]] = {}
    for event in events:
        if event.value is None:
            continue
        if not event.is_op:
            sources.add(event.written, event.value, event.unit)
        metric = named(event)
        if metric is not None:
            name, unit, value = metric
            places = values.setdefault((name, unit), {})
            places.setdefault((event.phase, event.graph), []).append(value)
    others: dict[str, Measure] = {}
    for (name, unit), places in values.items():
        for place, taken in places.items():
            shown = _apart(name, place, list(places))
            others[shown] = Measure(mean(taken), unit)
            if name == "execute_us":
                others |= spread(shown.removesuffix("_us"), taken)
            elif name == "accelerator_execute_cycles":
                others |= apart(shown.removesuffix("_cycles"), taken, "cycles")
    metrics = replace(Metrics(others=others), source=sources.numbers)
    problems = () if others else ("cut: the profile contains no numbers",)
    return Profile(kind, metrics, operations(events), problems=problems)


def _apart(name: str, place: tuple[str, str], places: list[tuple[str, str]]) -> str:
    """Return the name with its phase or graph as a prefix, if there are several.

    Numbers of several phases or graphs are never averaged together. Numbers of the execution have
    no prefix for the phase.
    """
    phase, graph = place
    if phase != "execute" and any(other != phase for other, _ in places):
        name = f"{phase or 'other'}_{name}"
    if graph and any(other != graph for _, other in places):
        name = f"{slug(graph)}_{name}"
    return name


def named(event: ProfileEvent) -> tuple[str, str, float] | None:
    """Return (name, unit, value) of a number that belongs in the metrics; None for another row."""
    value, text = event.value or 0.0, event.identifier
    if event.netrun:
        return unit_of(f"netrun_{event.phase}", value, event.unit)
    if event.parent == _ESTIMATES:
        if text.startswith(_HEADINGS):
            return None
        match = _SIMULATED.fullmatch(text)
        what = match["what"].removesuffix(" us").removesuffix(" cycles") if match else text
        side = f"_{match['side']}" if match and match["side"] else ""
        return unit_of(f"estimated_{slug(what)}{side}", value, event.unit)
    if event.parent or text == _ESTIMATES or not slug(text):
        return None
    bare = text.removesuffix(" (cycles)").removesuffix(" time")
    return unit_of(_NAMES.get(text) or slug(bare), value, event.unit)


def unit_of(name: str, value: float, unit: str) -> tuple[str, str, float]:
    """Return (name with its unit, unit, value). An unknown unit stays as it is written."""
    factor, word = _MICROSECONDS.get(unit.upper()), unit.upper()
    if factor is not None:
        return f"{name}_us", "us", value * factor
    if word == "CYCLES":
        return f"{name}_cycles", "cycles", value
    if word == "BYTES":
        return f"{name}_bytes", "bytes", value
    if word == "COUNT":
        return name, "", value
    if word == "INF/SEC":
        return RATE, RATE_UNIT, value
    return f"{name}_{slug(unit) or 'unitless'}", unit, value


def operations(events: list[ProfileEvent]) -> tuple[Op, ...]:
    """Return the operations with their means over the inferences.

    Graphs are distinguished by their names, or by their operations.
    """
    graphs: dict[tuple[str, tuple[tuple[str, str], ...]], list[list[float]]] = defaultdict(list)
    block: list[ProfileEvent] = []
    for event in [*events, ProfileEvent("", "", None, "")]:
        if event.is_op:
            if event.value is not None:
                block.append(event)
        elif block and not event.parent:
            names = tuple((node.identifier, node.unit) for node in block)
            graphs[block[0].graph, names].append([node.value or 0.0 for node in block])
            block = []
    known = len({graph for graph, _ in graphs}) == len(graphs)
    ops: list[Op] = []
    for turn, ((graph, names), runs) in enumerate(graphs.items(), 1):
        shown = "" if len(graphs) == 1 else graph if known and graph else f"#{turn}"
        taken: dict[str, int] = {}
        for place, (identifier, unit) in enumerate(names):
            name = op_name(identifier)
            taken[name] = taken.get(name, 0) + 1
            name = f"{name}#{taken[name]}" if taken[name] > 1 else name
            value = mean([run[place] for run in runs])
            normal, scale = _op_unit(unit)
            ops.append(Op(name, value * scale, normal, graph=shown))
    return tuple(ops)


def _op_unit(unit: str) -> tuple[str, float]:
    if unit.upper() in _MICROSECONDS:
        return "us", _MICROSECONDS[unit.upper()]
    return ("cycles" if unit.upper() == "CYCLES" else unit), 1.0


def op_name(identifier: str) -> str:
    """Return `Relu5` for `Relu5:OpId_26 (cycles)`, because the number differs in every build."""
    match = _OP.fullmatch(identifier)
    return (match["name"] or f"OpId_{match['id']}") if match else identifier
