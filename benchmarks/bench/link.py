"""g: a board behind a slow, long link."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from . import fleetrows, peers, sources
from .child import run
from .compare import Bench, Case, say
from .crowd import tiny
from .fleetrows import API
from .ground import BoardGround
from .scenarios import OneBoard, size_word
from .sources import MIB
from .stats import Bar, Figures, Result, Row
from .tools import Push, Tool
from .wiring import Wiring

SIZE = 64 * MIB
PROXY = Path(__file__).with_name("slowlink.py")
TRIPS = 6


@contextlib.contextmanager
def slow_link(port: int, rtt: float, mbit: float) -> Iterator[int]:
    """The port of a link to `port` with `rtt` ms there and back and `mbit` Mbit/s each way."""
    argv = [sys.executable, str(PROXY), str(port), str(rtt), str(mbit)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            yield int(proxy.stdout.readline())
        finally:
            proxy.terminate()


class FarBoard(OneBoard):
    """The first board, through the link; it is cleaned and checked past it."""

    def __init__(
        self, bench: Bench, ground: BoardGround, source: Path, wiring: Wiring, rate: float
    ) -> None:
        super().__init__(bench, ground, source)
        self._wiring, self._rate = wiring, rate
        self._size = sources.size_of(source)

    def push(self, tool: Tool, source: Path | None = None) -> Push:
        near = super().push(tool, source)
        return replace(near, wiring=self._wiring, endpoint=self._wiring.endpoints[0])

    def after(self, tool: Tool) -> Figures:
        return super().check(tool)

    def shares(self, rows: list[Row]) -> None:
        """Share of the link: of the whole process, and of the sending step where it is known."""
        for row in rows:
            for one in row.samples:
                if one is not None:
                    one["share"] = self._size / self._rate / one["seconds"]
                    if "send" in one:
                        one["send_share"] = self._size / self._rate / one["send"]


def slow(bench: Bench, ground: BoardGround) -> list[Result]:
    """For each round-trip time: a blob, and the round trips of a tiny first deploy."""
    found = []
    for rtt in bench.rtts:
        with slow_link(ground.endpoint.port, rtt, bench.mbit) as port:
            say(f"  link of {rtt:g} ms and {bench.mbit:g} Mbit/s")
            wiring = ground.through(f"link{rtt:g}", port)
            found += [_blob(bench, ground, wiring, rtt), _trips(bench, ground, wiring, rtt)]
    return found


def _blob(bench: Bench, ground: BoardGround, wiring: Wiring, rtt: float) -> Result:
    size = bench.bytes(SIZE)
    source = sources.blob(bench.fresh("source") / "big", size)
    board = FarBoard(bench, ground, source, wiring, bench.mbit * 125_000)
    names = (*(peers.CAT, peers.SCP, peers.RSYNC, peers.PARAMIKO, peers.FABRIC, peers.ASYNCSSH),)
    case = Case(board.command, board.anew, board.after, has=ground.has)
    title = f"{size_word(size)} over a link of {rtt:g} ms and {bench.mbit:g} Mbit/s"
    result = board.measure(f"g-{rtt:g}", title, names, case, peers.CAT)
    board.shares(result.rows)
    result.columns = (("share", "share of the link"), ("send", "send s"))
    result.columns += (("send_share", "share while sending"),)
    result.bars = (
        Bar("90% of the link while sending", API, field="send_share", least=0.9, unit=""),
    )
    ideal = size / (bench.mbit * 125_000)
    result.notes.append(
        f"{rtt:g} ms there and back; the link alone needs {ideal:.2f} s. The whole process has "
        "the start of the program and the ssh handshake in it as well"
    )
    return result


def _trips(bench: Bench, ground: BoardGround, wiring: Wiring, rtt: float) -> Result:
    """Counted by fleet, and measured: how many times the round trip the link adds."""
    source = tiny(bench.fresh("source") / "tiny")
    near = OneBoard(bench, ground, source)
    far = FarBoard(bench, ground, source, wiring, bench.mbit * 125_000)
    row = Row(API, "fleet")
    tool = next(one for one in fleetrows.ROWS if one.name == API)
    for number in range(bench.rounds):
        inner = []
        for board in (near, far):
            board.anew(tool)
            command = board.command(tool)
            ran = run(command.argv, limit=bench.limit, env=command.env, cwd=bench.folder)
            if not ran.ok:
                raise SystemExit(f"{API} failed: {ran.words}")
            board.check(tool)
            inner.append(ran.figures())
        quick, slow_one = inner
        figures = dict(slow_one)
        figures["counted"] = figures["round_trips"] - 1  # the one that carries the payload
        figures["measured"] = (slow_one["inner"] - quick["inner"]) / (rtt / 1000)
        row.samples.append(figures)
        say(f"  round {number + 1} tiny first deploy: {figures['measured']:.1f} round trips")
    return Result(
        f"g-{rtt:g}-trips",
        f"Round trips of a tiny first deploy over {rtt:g} ms",
        API,
        [row],
        bench.rounds,
        bars=(
            Bar("commands beyond the payload", API, field="counted", most=TRIPS, unit=""),
            Bar("round trips of the link, all", API, field="measured", most=TRIPS + 1, unit=""),
        ),
        columns=(("counted", "commands beyond the payload"), ("measured", "measured")),
        notes=["measured: what the link adds on an open connection, divided by its round trip"],
        chart=False,
    )
