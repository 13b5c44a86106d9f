"""Records as pictures of letters, under their table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fleet.cli import output
from fleet.model.metrics import HEADLINES
from fleet.model.record import Record
from fleet.model.text import harmless
from fleet.profiles.pictures.lines import Bar, bars, known, sparkline

WIDTH = 80  # where there is no terminal
DEVICES = 20


def show_pictures(records: Sequence[Record]) -> None:
    """The repeats of each device as a sparkline; several devices as bars with intervals.

    Of the runs that count, in one metric: the first that they have of tok/s, the latency of a
    network, TTFT, and others.
    """
    # numpy, for this alone
    from fleet.profiles.compare.groups import by_run  # noqa: PLC0415
    from fleet.profiles.compare.metrics import metric, present, value  # noqa: PLC0415
    from fleet.profiles.stats.difference import difference  # noqa: PLC0415

    whole = [record for record in records if not record.warmup]
    names = present([record for record in whole if record.counts])
    wanted = [key for key in HEADLINES if key in names] + names
    name = next(iter(wanted), None)
    if name is None:
        return
    plain = not known(output.console.encoding)
    width = output.console.width if output.console.is_terminal else WIDTH
    boards: dict[str, list[Record]] = {}
    for record in whole:
        boards.setdefault(harmless(record.host) or "unknown device", []).append(record)
    shown, drawn = metric(name, whole).shown, list[Bar]()
    for host, mine in list(boards.items())[:DEVICES]:
        ordered = sorted(mine, key=lambda record: (record.started, record.run_id, record.repeat))
        values = [value(record, name) if record.counts else None for record in ordered]
        good = sorted(number for number in values if number is not None and math.isfinite(number))
        if not good:
            continue
        room = max(width - len(host) - len(shown) - 30, 8)
        if len(good) > 1:
            line = sparkline(values, room, plain=plain)
            output.say(f"  {host} {shown} {line} {good[0]:.4g} to {good[-1]:.4g}")
        alone = difference(by_run(ordered, name), [])
        ends = (alone.a.low, alone.a.high) if alone.a else (None, None)
        drawn.append(Bar(host, good[0] if alone.mid_a is None else alone.mid_a, *ends))
    if len(drawn) > 1:
        output.say(f"  {shown}, with 95 % intervals for five or more runs")
        for line in bars(drawn, width - 2, plain=plain):
            output.say(f"  {line}")
    if len(boards) > DEVICES:
        output.note(f"only {DEVICES} of {len(boards)} devices are drawn")
