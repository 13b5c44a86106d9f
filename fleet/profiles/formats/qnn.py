"""CSV of qnn-profile-viewer and of ONNX Runtime's QNN provider: the same columns.

`Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier`
(deployment.md 4.2; qnn_profile_serializer.cc of onnxruntime).
"""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from collections.abc import Mapping

from fleet.model.errors import RunnerError
from fleet.model.record import Measure

_COLUMNS = ("Message", "Time", "Unit of Measurement", "Event Level", "Event Identifier")
_ROOT = "ROOT"


def parse_csv(text: str) -> Mapping[str, Measure]:
    """Means of the events of the top level, by name; what is no number is left out.

    Raises RunnerError for text without these columns.
    """
    rows = csv.DictReader(text.splitlines())
    if rows.fieldnames is None or any(name not in rows.fieldnames for name in _COLUMNS):
        raise RunnerError("this is no CSV of qnn-profile-viewer: its columns are not there")
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    try:
        for row in rows:
            number = _number(row["Time"])
            if number is not None and (row["Event Level"] or "").strip() in {"", _ROOT}:
                unit = (row["Unit of Measurement"] or "").strip()
                name = f"{row['Message'] or ''} {row['Event Identifier'] or ''}"
                values[(_slug(name), unit)].append(number)
    except csv.Error as error:
        raise RunnerError(f"the CSV of qnn-profile-viewer is broken: {error}") from error
    return {
        name: Measure(sum(found) / len(found), unit)
        for (name, unit), found in values.items()
        if name
    }


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
