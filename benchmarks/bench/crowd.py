"""f: many boards, a tiny deploy and the same again; and how much memory that takes."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from fleet.lab import Lab

from . import fleetrows, peers, sources
from .compare import Bench, Case, compare, say
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


def many_boards(bench: Bench) -> list[Result]:
    """Two results: times, and memory by the number of boards."""
    most = max(bench.boards, *bench.memory)
    source = tiny(bench.fresh("source") / "tiny")
    fleets = Tool(CLI, _fleet, "fleet")
    say(f"  {most} boards boot")
    with Lab.up(bench.folder / "crowd", count=most, kind=bench.kind, base_port=0) as lab:
        ground = BoardGround(lab, bench.folder / "crowd-wiring")
        crowd = Crowd(bench, ground, bench.boards, source)
        case = Case(crowd.command, crowd.before, crowd.check, times=(FIRST, AGAIN), has=ground.has)
        others = [peers.PEERS[name] for name in (PYINFRA, ANSIBLE)]
        rows, missing = compare(bench, [fleets, *others], case)
        sized = [_sized(bench, ground, source, fleets, count) for count in bench.memory]
    times = Result(
        "f",
        f"{bench.boards} boards: a tiny deploy, then the same again",
        CLI,
        rows,
        bench.rounds,
        bars=(
            Bar("at most 1/5 of pyinfra's time", CLI, (PYINFRA,), most=1 / 5),
            Bar("at most 1/20 of Ansible's time", CLI, (ANSIBLE,), most=1 / 20),
        ),
        columns=((FIRST, "first s"), (AGAIN, "again s"), ("rss_mib", "largest process MiB")),
        missing=missing,
        notes=["seconds are those of both deploys together; 5 files, 116 KiB a board"],
    )
    return [times, _memory(bench, sized)]


def _sized(bench: Bench, ground: BoardGround, source: Path, tool: Tool, count: int) -> Row:
    """Peak memory of fleet's process with `count` boards."""
    crowd = Crowd(bench, ground, count, source)
    case = Case(crowd.command, crowd.before, crowd.check)
    rows, _ = compare(bench, [tool], case)
    return Row(_boards(count), "fleet", rows[0].samples)


def _boards(count: int) -> str:
    return f"{count} boards"


def _memory(bench: Bench, rows: Sequence[Row]) -> Result:
    few, most = _boards(min(bench.memory)), _boards(max(bench.memory))
    return Result(
        "f-memory",
        "Memory of fleet's process, by the number of boards",
        few,
        list(rows),
        bench.rounds,
        bars=(Bar(f"from {few} to {most} within 20%", most, (few,), field="rss_mib", most=1.2),),
        columns=(("rss_mib", "peak MiB"),),
        chart=False,
    )
