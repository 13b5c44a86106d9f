"""Tables of measured runs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fleet.cli import output
from fleet.engine.run.measuring.heat import Heat, hottest
from fleet.engine.run.measuring.validity import cure_of, words_of
from fleet.model.metrics import (
    KNOWN,
    LATENCY,
    MEANS,
    METRICS,
    NETWORK,
    latency,
    median_of,
    shown_numbers,
)
from fleet.profiles.compare.groups import short_build

_COLUMNS = {
    "tokens": {m.name: m for m in METRICS if m.tabled},
    "network": NETWORK,
}
_INIT = "init_ms"
_DROPS = ("QAIRT", "chip", "tokens", "init ms", "emulated")


def _kind(records: Sequence[dict[str, Any]]) -> str:
    """Return `tokens` for a language model, `network` for other models, "" if neither was
    measured.
    """
    keys = {key for record in records for key in shown_numbers(record)}
    if keys & _COLUMNS["tokens"].keys() - {_INIT}:
        return "tokens"
    return "network" if keys & NETWORK.keys() else ""


def _median(records: Sequence[dict[str, Any]], key: str, digits: int) -> str:
    value = median_of(records, key)
    return "-" if value is None else f"{value:.{digits}f}"


def _others(records: Sequence[dict[str, Any]], shown: str) -> str:
    """Return `words 5, wall_ms 12.0 ms`: the medians of metrics that the table does not show.

    Only some runners have such metrics.
    """
    numbers: dict[tuple[str, str], list[float]] = {}
    for record in records:
        others = record["metrics"].get("others", {})
        shown_names = (
            {name for name, _ in latency(others).values()} if shown == "network" else set()
        )
        for name, measure in others.items():
            if name not in shown_names:
                numbers.setdefault((name, measure["unit"]), []).append(measure["value"])
    return ", ".join(
        f"{name} {statistics.median(values):g}{f' {unit}' if unit else ''}"
        for (name, unit), values in sorted(numbers.items())
    )


def _emulated(records: Sequence[dict[str, Any]]) -> str | None:
    """Return yes, no or mixed; None if it is unknown."""
    answers = {record["emulated"] for record in records}
    if len(answers) > 1:
        return "mixed"
    return {True: "yes", False: "no"}.get(answers.pop())


def _table(title: str, kind: str, records: Sequence[dict[str, Any]]) -> None:
    """Print one row for each device. `kind` selects the columns of numbers."""
    hosts = _by_host(records)
    numbers = dict(_COLUMNS.get(kind, {}))
    if any(_INIT in shown_numbers(record) for record in records):
        numbers = {_INIT: KNOWN[_INIT]} | numbers
    cells: dict[str, list[str | None]] = {
        "device": [host or None for host in hosts],
        "chip": [mine[0]["facts"].get("soc", {}).get("chip") for mine in hosts.values()],
        "QAIRT": [short_build(_build(mine[0])) or None for mine in hosts.values()],
        "runs": [f"{sum(r['counts'] for r in mine)}/{len(mine)}" for mine in hosts.values()],
        **{
            metric.column: [_median(mine, key, metric.digits) for mine in hosts.values()]
            for key, metric in numbers.items()
        },
        "emulated": [_emulated(mine) for mine in hosts.values()],
    }
    output.table(title, tuple(cells), zip(*cells.values(), strict=True), _DROPS)


def _by_host(records: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    hosts: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        hosts.setdefault(record["host"], []).append(record)
    return hosts


def _build(record: dict[str, Any]) -> str:
    return str(record["origin"].get("build_id") or "")


def show_records(title: str, records: Sequence[dict[str, Any]]) -> None:
    """Print the medians of the counting runs, one row for each device, and why other runs do not
    count.

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
        hosts = _by_host(kinds[kind])
        for host, mine in hosts.items():
            _remarks(host or "unknown device", kind, mine)
        _conditions(hosts)
    if any(r["emulated"] for r in records):
        output.note(
            "these runs were emulated (lab device or HTP emulator on x86_64), so the numbers "
            "are not those of an NPU"
        )
    for text, mine in _by_text(records, "problems").items():
        verb = "is" if len(mine) == 1 else "are"
        output.note(f"{_runs(mine)} {verb} not valid: {words_of(text)}")
    for text, mine in _by_text(records, "marks").items():
        output.note(f"{_runs(mine)}: {text}")
    cures = [
        cure_of(problem, record["host"] or "unknown device")
        for record in records
        if not (record.get("origin") or {}).get("imported")
        for problem in record["problems"]
    ]
    for cure in dict.fromkeys(cures):
        output.advise(f"next: {cure}")


def _by_text(records: Sequence[dict[str, Any]], key: str) -> dict[str, list[dict[str, Any]]]:
    """Group records by each of their problems or marks."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        for text in record.get(key, ()):
            groups.setdefault(text, []).append(record)
    return groups


def _runs(records: Sequence[dict[str, Any]]) -> str:
    """Return `lab001, lab002: warm-up 1, runs 1 to 5`; devices with the same runs together."""
    devices: dict[str, list[str]] = {}
    for host, mine in _by_host(records).items():
        devices.setdefault(_turns(mine), []).append(host or "unknown device")
    return "; ".join(f"{', '.join(hosts)}: {turns}" for turns, hosts in devices.items())


def _turns(records: Sequence[dict[str, Any]]) -> str:
    """Return `warm-ups 1 and 2, runs 1 to 5` for the records of one device."""
    parts = []
    for warmup, word in ((True, "warm-up"), (False, "run")):
        numbers = sorted({record["repeat"] + 1 for record in records if record["warmup"] is warmup})
        if numbers:
            parts.append(f"{word}{'s' * (len(numbers) > 1)} {_numbered(numbers)}")
    return ", ".join(parts)


def _numbered(numbers: Sequence[int]) -> str:
    """Return `2`, `1 to 5` or `1, 3, 4` for sorted numbers."""
    first, last = numbers[0], numbers[-1]
    if len(numbers) > 2 and last - first == len(numbers) - 1:
        return f"{first} to {last}"
    return ", ".join(map(str, numbers))


def _remarks(host: str, kind: str, records: Sequence[dict[str, Any]]) -> None:
    good = [record for record in records if record["counts"]]
    names = [latency(record["metrics"]["others"]).get(LATENCY) for record in good]
    if kind == "network" and any(name and name[0] in MEANS for name in names):
        output.note(
            f"{host}: the program reports only the mean time of a run, not the time of each "
            "inference"
        )
    others = _others(good, kind)
    if others:
        output.note(f"{host}, other metrics: {others}")


def _conditions(hosts: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    """Print each set of conditions once, with its devices. The cost of reading is the highest of
    them.
    """
    groups: dict[str, list[str]] = {}
    for host, mine in hosts.items():
        groups.setdefault(_state(_condition_rows(mine)), []).append(host)
    for names in groups.values():
        line = conditions_line([record for name in names for record in hosts[name]])
        if line:
            who = "all devices" if len(names) == len(hosts) > 3 else ", ".join(names)
            output.note(f"{who or 'unknown device'}: {line}")


def conditions_line(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the conditions of records under the same conditions; "" if nothing is known.

    The form is `temperature at the start 41.3 to 52.0 °C (nspss-0), 61.0 °C peak; governor ...`.
    The records are plain data.
    """
    rows = _condition_rows(records)
    parts = [_state(rows)]
    costs = [conditions["cost"] for conditions in rows if conditions.get("cost") is not None]
    if costs:
        parts.append(
            f"fleet used at most {max(costs):.2%} of one CPU core to read temperature and clocks"
        )
    return "; ".join(part for part in parts if part)


def _condition_rows(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [record.get("conditions") or {} for record in records]


def _state(rows: Sequence[Mapping[str, Any]]) -> str:
    parts = [
        _heat(rows),
        _words("governor", rows, "governors"),
        _words("power", rows, "power"),
    ]
    return "; ".join(part for part in parts if part)


def _heat(rows: Sequence[Mapping[str, Any]]) -> str:
    starts = [heat for conditions in rows if (heat := _hottest(conditions.get("before")))]
    if not starts:
        return ""
    samples = [sample for c in rows for sample in (*c.get("during", ()), c.get("after"))]
    most = max((heat.celsius for sample in samples if (heat := _hottest(sample))), default=None)
    low, high = min(h.celsius for h in starts), max(h.celsius for h in starts)
    span = f"{low:.1f}" if low == high else f"{low:.1f} to {high:.1f}"
    names = ", ".join(sorted({heat.zone for heat in starts}))
    tail = f", {most:.1f} °C peak" if most is not None else ""
    return f"temperature at the start {span} °C ({names}){tail}"


def _hottest(sample: Mapping[str, Any] | None) -> Heat | None:
    return hottest(sample["zones"]) if sample else None


def _words(title: str, rows: Sequence[Mapping[str, Any]], key: str) -> str:
    """Return `governor performance`, or `power battery Charging, usb online`."""
    pairs = {pair for conditions in rows for pair in (conditions.get(key) or {}).items()}
    if key == "governors":
        words = sorted({text for name, text in pairs if name.startswith("cpu:")})
    else:
        words = sorted(f"{name} {text}" for name, text in pairs)
    return f"{title} {', '.join(words)}" if words else ""
