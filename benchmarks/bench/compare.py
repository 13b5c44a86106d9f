"""Tools in turn: prepared, timed, checked, round by round."""

from __future__ import annotations

import resource
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .child import Ran, run
from .ground import settle
from .stats import Figures, Result, Row, turns
from .tools import Command, Tool


def say(text: str) -> None:
    """Progress, apart from the tables."""
    print(text, file=sys.stderr, flush=True)


@dataclass
class Bench:
    """How to measure. `folder` holds everything; `limit` in seconds is for one run of a tool.

    `keep` is told what there is of a scenario that takes long, after each of its rounds.
    """

    folder: Path
    rounds: int = 5
    scale: float = 1.0
    limit: float = 120.0
    peers: Path | None = None
    only: tuple[str, ...] = ()
    kind: str = "auto"
    boards: int = 50
    memory: tuple[int, ...] = (10, 50, 200)
    rtts: tuple[float, ...] = (50.0, 100.0)  # ms, there and back
    mbit: float = 100.0
    keep: Callable[[Sequence[Result]], object] = lambda _: None

    def bytes(self, full: int, least: int = 65536) -> int:
        """A size of the full benchmark, scaled."""
        return max(least, int(full * self.scale))

    def count(self, full: int, least: int = 2) -> int:
        return max(least, round(full * self.scale))

    def fresh(self, name: str) -> Path:
        """An empty folder of that name."""
        place = self.folder / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        return place

    def wants(self, tool: Tool) -> bool:
        """fleet and the references always; peers unless `--tools` names others."""
        asked = not self.only or any(word in tool.name for word in self.only)
        return tool.kind != "peer" or asked


def _no_figures(_: Tool) -> Figures:
    return {}


@dataclass
class Case:
    """One scenario for `compare`. `before` prepares, untimed; `after` checks and may add figures.

    With several `times` the command is run as often, each a figure of that name, and `seconds`
    is the sum.
    """

    command: Callable[[Tool], Command]
    before: Callable[[Tool], None]
    after: Callable[[Tool], Figures] = _no_figures
    times: tuple[str, ...] = ()
    has: Callable[[str], bool] = field(default=lambda _: True)


def available(
    bench: Bench, tools: Sequence[Tool], has: Callable[[str], bool]
) -> tuple[list[Tool], dict[str, str]]:
    """Tools that can run, and name -> how to get it of those that cannot."""
    lacking = {tool.name: tool.lacks(bench.peers, has) for tool in tools if bench.wants(tool)}
    ready = [tool for tool in tools if lacking.get(tool.name) == ""]
    return ready, {name: how for name, how in lacking.items() if how}


Compared = tuple[list[Row], dict[str, str]]


def compare(
    bench: Bench,
    tools: Sequence[Tool],
    case: Case,
    after_round: Callable[[Compared], object] = lambda _: None,
) -> Compared:
    """Rows of all tools, and those that are missing. A wrong result or a failed fleet ends it."""
    ready, missing = available(bench, tools, case.has)
    for name, how in missing.items():
        say(f"  missing: {name} ({how})")
    rows = {tool.name: Row(tool.name, tool.kind, main=tool.main) for tool in ready}
    known = {tool.name: tool for tool in ready}
    for number in range(bench.rounds):
        for name in turns(list(rows), number):
            row = rows[name]
            figures = None if row.note else _one(bench, known[name], case, row)
            row.samples.append(figures)
            if figures is not None:
                parts = ", ".join(f"{one} {figures[one]:.2f}" for one in case.times)
                word = f" ({parts})" if parts else ""
                say(f"  round {number + 1} {name}: {figures['seconds']:.2f} s{word}")
        after_round((list(rows.values()), missing))
    return list(rows.values()), missing


def _one(bench: Bench, tool: Tool, case: Case, row: Row) -> Figures | None:
    """One sample; a tool that fails or does not end is not tried again."""
    case.before(tool)
    settle(bench.folder)
    total: Figures = {}
    for time in case.times or ("",):
        command = case.command(tool)
        ran = run(command.argv, limit=bench.limit, env=command.env, cwd=bench.folder)
        if not ran.ok:
            row.note = _why(ran, bench)
            row.over = None if ran.in_time or row.values() else bench.limit
            say(f"  {tool.name}: {row.note}: {ran.words}")
            if tool.kind == "fleet":
                raise SystemExit(f"{tool.name} failed: {ran.words}")
            return None
        total = _added(total, _figures(ran), time)
    return total | case.after(tool)


def once(bench: Bench, command: Command, name: str) -> None:
    """An untimed push, for what is there before."""
    ran = run(command.argv, limit=bench.limit * 5, env=command.env, cwd=bench.folder)
    if not ran.ok:
        raise SystemExit(f"{name} (to prepare): {ran.words}")


def _why(ran: Ran, bench: Bench) -> str:
    return f"failed with status {ran.status}" if ran.in_time else f"not done in {bench.limit:g} s"


def _figures(ran: Ran) -> Figures:
    """A small process inherits the peak of this one at its start; then nothing is known."""
    found = ran.figures()
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if found["rss_mib"] <= own:
        del found["rss_mib"]
    return found


def _added(total: Figures, more: Figures, time: str) -> Figures:
    """Seconds and CPU add up over the times, memory is the largest, the rest is the last."""
    if not time:
        return more
    found = {**total, **more, time: more["seconds"]}
    for name in ("seconds", "cpu"):
        found[name] = total.get(name, 0.0) + more[name]
    if "rss_mib" in total:
        found["rss_mib"] = max(total["rss_mib"], more.get("rss_mib", 0.0))
    return found
