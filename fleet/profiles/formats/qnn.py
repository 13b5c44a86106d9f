"""The reader of CSV of qnn-profile-viewer and of ONNX Runtime's QNN provider: the same columns.

The columns are `Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event
Identifier` (docs/sources/deployment.md 5; qnn_profile_serializer.cc of onnxruntime). The viewer
writes some lines with versions above the names of the columns, and a blank after each comma of
these names; its own rows (NETRUN) name graphs. ONNX Runtime calls operations NODE. The viewer calls
them EXECUTE, like everything in that phase. Operations repeat for each inference.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import replace

from msgspec import structs

from fleet.model.errors import ProfileError
from fleet.profiles.formats import qnn_json
from fleet.profiles.formats.base import RATE, Profile, number
from fleet.profiles.formats.qnn_events import ProfileEvent, profile_of

COLUMNS = (
    *("Msg Timestamp", "Message", "Time", "Unit of Measurement"),
    *("Timing Source", "Event Level", "Event Identifier"),
)
_ROOT = "ROOT"
_MOST_LINES_BEFORE = 20  # lines that the viewer may write above its table; 2.25 writes four
_GRAPH = re.compile(r"Graph \d+: (.*)")
_BACKEND = re.compile(r"Backend version *, *v?([0-9][0-9.]*[0-9])")
_VIEWED = "qnn-profile-viewer --input_log LOG --output NEW.csv (writes the file from the log)"


def read(text: str) -> Profile:
    """Return the means over the inferences by name (µs, cycles, bytes, counts), and the operations.

    Raises ProfileError for other columns, a truncated file or a decimal comma.
    """
    return _profile(text, list(_rows(text)))


def _profile(text: str, rows: list[ProfileEvent]) -> Profile:
    runtime = _BACKEND.search(text[: _heading(text)[1]])
    return replace(profile_of(rows, "qnn-csv"), runtime=runtime[1] if runtime else "")


def merged(json_text: str | None, csv_text: str | None) -> Profile:
    """Return one run from the output of the JSON reader and of the default reader of the viewer.

    Operations and the numbers of the backend come from the JSON. The JSON names no graph, so if the
    CSV names several graphs, they come from the CSV. Only the CSV has the times that qnn-net-run
    took itself (`netrun_init_us`, `netrun_compose_us`, `netrun_deinit_us`, ...).

    If one text is None or "", the other one is read alone. Raises ProfileError if both are missing,
    or if a text cannot be read.
    """
    rows = list(_rows(csv_text)) if csv_text else []
    table = _profile(csv_text, rows) if csv_text else None
    if not json_text:
        if table is None:
            raise ProfileError("the output of qnn-profile-viewer is empty", hint=_VIEWED)
        return table
    made = qnn_json.loaded(json_text)
    if table is None:
        return made
    if len({row.graph for row in rows if row.graph}) > 1:
        return replace(table, runtime=made.runtime or table.runtime)
    ours = table.metrics
    timed = {
        name: measure for name, measure in ours.others.items() if "netrun_" in name or name == RATE
    }
    written = {name: measure for name, measure in ours.source.items() if name.startswith("NETRUN ")}
    metrics = structs.replace(
        made.metrics,
        others=timed | dict(made.metrics.others),
        source=written | dict(made.metrics.source),
    )
    problems = () if metrics.others else made.problems
    return replace(made, metrics=metrics, problems=problems, runtime=made.runtime or table.runtime)


def is_csv(text: str) -> bool:
    """Return whether the first lines contain the column names of a table of QNN."""
    return _heading(text)[0] != ""


def _heading(text: str) -> tuple[str, int]:
    """Return the line with the column names and its offset; "" and 0 if there is none."""
    place = 0
    for line in text[: 1 << 16].splitlines(keepends=True)[:_MOST_LINES_BEFORE]:
        if "Event Identifier" in line:
            return line.strip().lstrip("\ufeff"), place
        place += len(line)
    return "", 0


def _columns(heading: str, line: int) -> list[str]:
    """Return the names of the columns. Raises ProfileError if a required one is missing."""
    header = [name.strip() for name in heading.split(",")]
    if all(name in header for name in COLUMNS):
        return header
    if ";" in heading:
        raise ProfileError(
            "the columns are separated by ';' instead of ',', probably because a "
            "spreadsheet saved the file",
            line=line,
            hint=_VIEWED,
        )
    raise ProfileError(
        "the file does not have the columns of qnn-profile-viewer's CSV", hint=_VIEWED
    )


def _rows(text: str) -> Iterator[ProfileEvent]:
    heading, place = _heading(text)
    above, lines = len(text[:place].splitlines()), text[place:].splitlines()
    header = _columns(heading, above + 1)
    if not text.endswith("\n"):
        raise ProfileError(
            "the file is truncated: its last line has no line break",
            line=above + len(lines),
            hint="copy the file from the device again (or add a line break at its end)",
        )
    places = [header.index(name) for name in COLUMNS]
    rows = csv.reader(lines[1:], strict=True)
    parent = graph = ""
    of = ("", "")
    try:
        for row in rows:
            if not row:
                continue
            line = above + rows.line_num + 1
            if len(row) != len(header):
                raise _ragged(len(row), len(header), line)
            stamp, message, time, unit, source, level, identifier = (
                row[place].strip() for place in places
            )
            top = level in {"", _ROOT}
            parent = identifier if top else parent
            netrun = source == "NETRUN"
            graph_match = _GRAPH.fullmatch(identifier) if netrun else None
            if graph_match or of != (stamp, message):
                graph, of = graph_match[1] if graph_match else "", (stamp, message)
            yield ProfileEvent(
                message,
                identifier,
                _value(time, line),
                unit,
                "" if top else parent or "?",
                graph,
                netrun,
            )
    except csv.Error as error:
        line = above + rows.line_num + 1
        raise ProfileError(f"the CSV is damaged: {error}", line=line, hint=_VIEWED) from error


def _ragged(have: int, wanted: int, line: int) -> ProfileError:
    if have > wanted:
        return ProfileError(
            f"this line of the CSV has {have} values for {wanted} columns, perhaps because of a "
            "decimal comma",
            line=line,
            hint=f"LC_ALL=C {_VIEWED}",
        )
    return ProfileError(
        f"the file is truncated: this line of the CSV has {have} values for {wanted} columns",
        line=line,
        hint="copy the file from the device again",
    )


def _value(text: str, line: int) -> float | None:
    """Return the number; None for text without a digit (UNKNOWN, of traces) and below 0."""
    value = number(text)
    if value is None and any(sign.isdigit() for sign in text):
        raise ProfileError(
            f"the time '{text[:40]}' is not a number with a decimal point",
            line=line,
            hint=f"LC_ALL=C {_VIEWED}",
        )
    return value if value is not None and value >= 0 else None
