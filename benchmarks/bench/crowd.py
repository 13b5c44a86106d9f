"""f: many boards, a tiny deploy and the same again; m: how much memory that takes."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from fleet.lab import Lab

from . import fleetrows, peers, sources
from .compare import Bench, Case, Compared, compare, say
from .fleetrows import CLI, NAMES
from .ground import BoardGround
from .stats import Bar, Figures, Result, Row
from .tools import Command, Push, Tool
from .wiring import Wiring

PYINFRA, ANSIBLE = peers.PYINFRA_SYNC, peers.ANSIBLE
FIRST, AGAIN = "first", "again"


def tiny(folder: Path) -> Path:
    """Five files, 116 KiB: a small bundle."""
    for name, size in (("model.bin", 100 << 10), ("config.json", 2048), ("tokenizer.json", 8192)):
        sources.blob(folder / name, size)
    sources.blob(folder / "lib" / "libone.so", 4096)
    sources.blob(folder / "lib" / "libtwo.so", 4096)
    return folder


class Crowd:
    """All boards of a lab get the same small folder."""

    def __init__(self, bench: Bench, ground: BoardGround, boards: int, source: Path) -> None:
        self.bench, self.ground, self.source = bench, ground, source
        self.wanted = sources.hashes(source)
        self.endpoints = ground.wiring.endpoints[:boards]
        self.names = [one.name for one in self.endpoints]
        identity = ground.wiring.identity
        self.wiring = Wiring(bench.folder / f"of{boards}", self.endpoints, identity)
        self.home = bench.folder / "homes" / f"of{boards}"

    def command(self, tool: Tool) -> Command:
        scratch, endpoint = self.bench.fresh("scratch"), self.endpoints[0]
        return tool.build(
            Push(self.source, endpoint, self.wiring, scratch, self.home, self.bench.peers)
        )

    def before(self, _: Tool) -> None:
        self.ground.clean(self.names)
        shutil.rmtree(self.home, ignore_errors=True)

    def check(self, tool: Tool) -> Figures:
        for one in self.endpoints:
            fleets = tool.kind == "fleet"
            folder = f"{one.base}/current/{NAMES[CLI]}" if fleets else one.inbox
            self.ground.check(self.wanted, one, folder)
        return {}


def _fleet(push: Push) -> Command:
    argv = fleetrows.cli(push.wiring.inventory, push.source, NAMES[CLI])
    return Command(argv, fleetrows.environment(push.home))


FLEET = Tool(CLI, _fleet, "fleet")


def many_boards(bench: Bench) -> Result:
    """f: times. What there is after each round is kept: the slowest peer takes minutes."""
    with _crowd(bench, bench.boards) as (ground, source):
        crowd = Crowd(bench, ground, bench.boards, source)
        case = Case(crowd.command, crowd.before, crowd.check, times=(FIRST, AGAIN), has=ground.has)
        tools = [FLEET, *(peers.PEERS[name] for name in (PYINFRA, ANSIBLE))]
        return _times(
            bench, compare(bench, tools, case, lambda so_far: bench.keep([_times(bench, so_far)]))
        )


def memory(bench: Bench) -> Result:
    """m: the peak of fleet's process, by the number of boards."""
    rows: list[Row] = []
    with _crowd(bench, max(bench.memory)) as (ground, source):
        for count in bench.memory:
            crowd = Crowd(bench, ground, count, source)
            case = Case(crowd.command, crowd.before, crowd.check)
            (row,), _ = compare(bench, [FLEET], case)
            rows.append(Row(_boards(count), "fleet", row.samples))
            bench.keep([_memory(bench, rows)])
    return _memory(bench, rows)


@contextlib.contextmanager
def _crowd(bench: Bench, count: int) -> Iterator[tuple[BoardGround, Path]]:
    """That many boards, and the folder for them."""
    source = tiny(bench.fresh("source") / "tiny")
    say(f"  {count} boards boot")
    with Lab.up(bench.fresh("crowd"), count=count, kind=bench.kind, base_port=0) as lab:
        yield BoardGround(lab, bench.folder / "crowd-wiring"), source


def _times(bench: Bench, found: Compared) -> Result:
    rows, missing = found
    return Result(
        "f",
        f"{bench.boards} boards: a tiny deploy, then the same again",
        CLI,
        rows,
        max((len(row.samples) for row in rows), default=0),
        bars=(
            Bar("both deploys: at most 1/5 of pyinfra's time", CLI, (PYINFRA,), most=1 / 5),
            Bar("both deploys: at most 1/20 of Ansible's time", CLI, (ANSIBLE,), most=1 / 20),
        ),
        columns=((FIRST, "first s"), (AGAIN, "again s"), ("rss_mib", "largest process MiB")),
        missing=missing,
        notes=["seconds are those of both deploys together; 5 files, 116 KiB a board"],
    )


def _boards(count: int) -> str:
    return f"{count} boards"


def _memory(bench: Bench, rows: Sequence[Row]) -> Result:
    few, most = _boards(min(bench.memory)), _boards(max(bench.memory))
    return Result(
        "m",
        "Memory of fleet's process, by the number of boards",
        few,
        list(rows),
        bench.rounds,
        bars=(Bar(f"from {few} to {most} within 20%", most, (few,), field="rss_mib", most=1.2),),
        columns=(("rss_mib", "peak MiB"),),
        chart=False,
    )
