"""Tables of measured runs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from fleet.cli import output
from fleet.cli.conditions_view import conditions_line


def _median(records: Sequence[dict[str, Any]], key: str) -> str:
    values = [r["metrics"][key] for r in records if r["counts"] and r["metrics"][key] is not None]
    digits = 2 if key.endswith("_tps") else 1
    return f"{statistics.median(values):.{digits}f}" if values else "-"


def _others(records: Sequence[dict[str, Any]]) -> str:
    """`words 5, wall_ms 12.0 ms`: medians of numbers that only some runners have."""
    found: dict[tuple[str, str], list[float]] = {}
    for record in records:
        for name, one in record["metrics"].get("others", {}).items():
            found.setdefault((name, one["unit"]), []).append(one["value"])
    return ", ".join(
        f"{name} {statistics.median(values):g}{f' {unit}' if unit else ''}"
        for (name, unit), values in sorted(found.items())
    )


def _short(build_id: str) -> str:
    """`2.51.0.260929`, as the folders of an SDK are named; the record has the whole id."""
    version, _, stamp = build_id.rpartition(".")
    return f"{version}.{stamp[:6]}" if version else stamp


def _emulated(records: Sequence[dict[str, Any]]) -> str | None:
    """yes, no, mixed; None where nobody said it."""
    said = {record["emulated"] for record in records}
    if len(said) > 1:
        return "mixed"
    return {True: "yes", False: "no"}.get(said.pop())


def show_records(title: str, records: Sequence[dict[str, Any]]) -> None:
    """Medians of the runs that count, one row a device; what does not count is said."""
    hosts: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        if not record["warmup"]:
            hosts.setdefault(record["host"], []).append(record)
    rows = []
    for host, mine in hosts.items():
        good = [r for r in mine if r["counts"]]
        rows.append(
            (
                host or None,
                mine[0]["facts"].get("soc", {}).get("chip"),
                _short(str(mine[0]["origin"].get("build_id") or "")) or None,
                f"{len(good)}/{len(mine)}",
                *(_median(mine, k) for k in ("init_ms", "ttft_ms", "prompt_tps", "decode_tps")),
                _median(mine, "generated_tokens").removesuffix(".0"),
                _emulated(mine),
            )
        )
    columns = ("device", "chip", "QAIRT", "runs", "init ms", "TTFT ms", "prompt tok/s")
    if rows:
        output.table(title, (*columns, "gen tok/s", "tokens", "emulated"), rows)
    for host, mine in hosts.items():
        others = _others([r for r in mine if r["counts"]])
        if others:
            output.note(f"{host or 'unknown device'} also: {others}")
        line = conditions_line(mine)
        if line:
            output.note(f"{host or 'unknown device'} {line}")
    if any(r["emulated"] for r in records):
        output.note("emulated: lab devices or the HTP emulator on x86_64; these are no NPU numbers")
    for record in records:
        turn = f"{'warm-up' if record['warmup'] else 'run'} {record['repeat'] + 1}"
        for problem in record["problems"]:
            host = record["host"] or "unknown device"
            output.note(f"{host} {turn}: {problem}; not counted")
        for mark in record.get("marks", ()):
            output.note(f"{record['host'] or 'unknown device'} {turn}: {mark}")
