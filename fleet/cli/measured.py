"""Tables of measured runs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from fleet.cli import output
from fleet.cli.columns import Column, show
from fleet.cli.conditions_view import conditions_line
from fleet.profiles.latency import MEANS, latency

TOKENS = {
    "TTFT ms": "ttft_ms",
    "prompt tok/s": "prompt_tps",
    "gen tok/s": "decode_tps",
    "tokens": "generated_tokens",
}
NETWORK = {"latency ms": "median", "p90 ms": "p90", "inf/s": "rate"}
_DIGITS = {"prompt_tps": 2, "decode_tps": 2, "median": 2, "p90": 2, "generated_tokens": 0}
_SPARE = {"QAIRT": 1, "chip": 2, "tokens": 3, "init ms": 4}


def _numbers(record: dict[str, Any]) -> dict[str, float]:
    """What a table may show of a record."""
    metrics = record["metrics"]
    keys = ("init_ms", *TOKENS.values())
    found = {key: metrics[key] for key in keys if metrics[key] is not None}
    return found | {key: value for key, (_, value) in latency(metrics["others"]).items()}


def _kind(records: Sequence[dict[str, Any]]) -> str:
    """`tokens` of a language model, `network` of any other; "" where neither was measured."""
    keys = {key for record in records for key in _numbers(record)}
    if keys & set(TOKENS.values()):
        return "tokens"
    return "network" if keys & set(NETWORK.values()) else ""


def _median(records: Sequence[dict[str, Any]], key: str) -> str:
    counted = [_numbers(record) for record in records if record["counts"]]
    values = [numbers[key] for numbers in counted if key in numbers]
    return f"{statistics.median(values):.{_DIGITS.get(key, 1)}f}" if values else "-"


def _others(records: Sequence[dict[str, Any]], shown: str) -> str:
    """`words 5, wall_ms 12.0 ms`: medians of numbers that only some runners have, and that the
    table does not have.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for record in records:
        others = record["metrics"].get("others", {})
        told = {name for name, _ in latency(others).values()} if shown == "network" else set()
        for name, one in others.items():
            if name not in told:
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


def _table(title: str, kind: str, records: Sequence[dict[str, Any]]) -> None:
    """One row a device. A column of numbers that nobody has is left out with its kind."""
    hosts = _by_host(records)
    heads = {"tokens": TOKENS, "network": NETWORK}.get(kind, {})
    started = kind == "tokens" or any("init_ms" in _numbers(record) for record in records)
    numbers = ({"init ms": "init_ms"} if started else {}) | heads
    cells: dict[str, list[str | None]] = {
        "device": [host or None for host in hosts],
        "chip": [mine[0]["facts"].get("soc", {}).get("chip") for mine in hosts.values()],
        "QAIRT": [_short(_build(mine[0])) or None for mine in hosts.values()],
        "runs": [f"{sum(r['counts'] for r in mine)}/{len(mine)}" for mine in hosts.values()],
        **{head: [_median(mine, key) for mine in hosts.values()] for head, key in numbers.items()},
        "emulated": [_emulated(mine) for mine in hosts.values()],
    }
    show(title, [Column(head, column, _SPARE.get(head, 0)) for head, column in cells.items()])


def _by_host(records: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    hosts: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        hosts.setdefault(record["host"], []).append(record)
    return hosts


def _build(record: dict[str, Any]) -> str:
    return str(record["origin"].get("build_id") or "")


def show_records(title: str, records: Sequence[dict[str, Any]]) -> None:
    """Medians of the runs that count, one row a device; what does not count is said.

    Language models and other networks have tables of their own.
    """
    models: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        if not record["warmup"]:
            models.setdefault((record["name"], record["runner"]), []).append(record)
    kinds: dict[str, list[dict[str, Any]]] = {}
    for mine in models.values():
        kinds.setdefault(_kind(mine), []).extend(mine)
    for kind in sorted(kinds, reverse=True):
        _table(title, kind, kinds[kind])
    for kind in sorted(kinds, reverse=True):
        for host, mine in _by_host(kinds[kind]).items():
            _remarks(host or "unknown device", kind, mine)
    if any(r["emulated"] for r in records):
        output.note("emulated: lab devices or the HTP emulator on x86_64; these are no NPU numbers")
    for record in records:
        turn = f"{'warm-up' if record['warmup'] else 'run'} {record['repeat'] + 1}"
        for problem in record["problems"]:
            host = record["host"] or "unknown device"
            output.note(f"{host} {turn}: {problem}; not counted")
        for mark in record.get("marks", ()):
            output.note(f"{record['host'] or 'unknown device'} {turn}: {mark}")


def _remarks(host: str, kind: str, records: Sequence[dict[str, Any]]) -> None:
    good = [record for record in records if record["counts"]]
    names = [latency(record["metrics"]["others"]).get("median") for record in good]
    if kind == "network" and any(name and name[0] in MEANS for name in names):
        output.note(f"{host}: its program gives the mean of a run, no single inferences")
    others = _others(good, kind)
    if others:
        output.note(f"{host} also: {others}")
    line = conditions_line(records)
    if line:
        output.note(f"{host} {line}")
