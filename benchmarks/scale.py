"""How long a deploy to 100, 1,000 and 10,000 boards takes: a discrete event simulation.

Costs of a board are measured (benchmarks/boards.py); links, sites and failure rates are
assumed, and every one is an option. Layouts:

  workstation  one process reaches every board; payload crosses its link once a board
  workers      a dask worker at each site: payload crosses the link once a site, then its LAN
  relay        one process; boards of a site hand the blobs on, each to one other at a time

Time is that of the last board. Links are shared evenly among the transfers that cross them.
Run: python benchmarks/scale.py --payload-gb 5 --svg docs/scale.svg
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path

LAYOUTS = ("workstation", "workers", "relay")
GBIT = 1e9 / 8  # bytes a second


@dataclass(frozen=True)
class Scene:
    """What is simulated. Seconds, bytes, bytes a second; `rtt` from where a board is driven."""

    boards: int = 100
    sites: int = 20
    layout: str = "workstation"
    payload: float = 5e9
    workstation_link: float = GBIT
    site_link: float = GBIT
    lan_link: float = 10 * GBIT
    board_link: float = GBIT
    wan_rtt: float = 0.030
    lan_rtt: float = 0.001
    slots: int = 64  # boards at a time: of the workstation, or of each site
    processes: int = 1  # worker processes of a site
    cpu: float = 0.051  # measured: CPU seconds of a board in the driving process, one core of it
    stream: float = 490e6  # measured: what one process encrypts, 2.0 CPU seconds a GB
    client_cpu: float = 0.004  # measured: CPU seconds a board of the workstation with workers
    trips: int = 14  # measured: 12 of a first deploy, and 2 for the handshake
    device: float = 10.0  # health probe and switch on the board
    hashing: float = 400e6  # bytes a second that a board hashes
    unreachable: float = 0.01
    timeout: float = 15.0  # connect_timeout
    waves: tuple[float, ...] = (1.0,)  # cumulative shares of the boards
    soak: float = 0.0
    seed: int = 1


@dataclass
class Outcome:
    """When the last board ended, and what was carried and spent."""

    seconds: float = 0.0
    done: int = 0
    failed: int = 0
    workstation_bytes: float = 0.0
    workstation_cpu: float = 0.0
    boards_at_once: int = 0


class Clock:
    """Events in order of time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._number), do))

    def run(self) -> None:
        while self._events:
            self.now, _, do = heapq.heappop(self._events)
            do()


class Cores:
    """CPU of a process: first come, first served."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._free = clock, 0.0

    def spend(self, seconds: float, then: Callable[[], None]) -> None:
        self._free = max(self._free, self._clock.now) + seconds
        self._clock.after(self._free - self._clock.now, then)


@dataclass
class _Group:
    """Transfers of one site: all go at the same rate, so one count of bytes serves them."""

    given: float = 0.0
    rate: float = 0.0
    ends: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)


class Pipe:
    """Transfers that share a trunk and a link a site; each is at most as fast as its own end."""

    def __init__(self, clock: Clock, trunk: float, link: float, own: float) -> None:
        self._clock, self._trunk, self._link, self._own = clock, trunk, link, own
        self._groups: dict[int, _Group] = {}
        self._at = 0.0
        self._active = 0
        self._version = 0
        self._number = itertools.count()

    def send(self, site: int, size: float, then: Callable[[], None]) -> None:
        self._advance()
        group = self._groups.setdefault(site, _Group())
        heapq.heappush(group.ends, (group.given + size, next(self._number), then))
        self._active += 1
        self._plan()

    def _advance(self) -> None:
        for group in self._groups.values():
            group.given += group.rate * (self._clock.now - self._at)
        self._at = self._clock.now

    def _plan(self) -> None:
        self._version += 1
        version, soonest = self._version, math.inf
        for group in self._groups.values():
            count = len(group.ends)
            group.rate = (
                min(self._own, self._link / count, self._trunk / self._active) if count else 0.0
            )
            if count:
                soonest = min(soonest, max(0.0, group.ends[0][0] - group.given) / group.rate)
        if soonest < math.inf:
            self._clock.after(soonest, lambda: self._end(version))

    def _end(self, version: int) -> None:
        if version != self._version:
            return
        self._advance()
        ended = []
        for group in self._groups.values():
            while group.ends and group.ends[0][0] <= group.given * (1 + 1e-12) + 1e-6:
                ended.append(heapq.heappop(group.ends)[2])
        self._active -= len(ended)
        self._plan()
        for then in ended:
            then()


class Simulation:
    """One deploy. Boards are spread over the sites evenly, waves cut across all of them."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.clock, self.out = scene, Clock(), Outcome()
        if scene.layout not in LAYOUTS:
            raise ValueError(f"layout is one of {', '.join(LAYOUTS)}")
        local = scene.layout == "workers"
        self._rtt = scene.lan_rtt if local else scene.wan_rtt
        drivers = scene.sites if local else 1
        self._cpu = scene.cpu / (scene.processes if local else 1)
        self._cores = [Cores(self.clock) for _ in range(drivers)]
        self._free = [scene.slots] * drivers
        self._waiting: list[deque[int]] = [deque() for _ in range(drivers)]
        trunk = min(scene.workstation_link, scene.stream)
        own = min(scene.board_link, scene.stream)
        self._wan = Pipe(self.clock, trunk, scene.site_link, scene.board_link)
        self._seed = Pipe(self.clock, scene.workstation_link, scene.site_link, math.inf)
        lan = min(scene.lan_link, scene.stream * scene.processes) if local else scene.lan_link
        self._lan = Pipe(self.clock, math.inf, lan, own)
        self._arrived = [False] * scene.sites  # workers: the payload is at the site
        self._asked = [False] * scene.sites
        self._expecting: list[list[Callable[[], None]]] = [[] for _ in range(scene.sites)]
        self._servers = [0] * scene.sites  # relay: boards that have it and serve nobody now
        self._seeded = [False] * scene.sites
        self._left = 0
        self._busy = 0
        dice = random.Random(scene.seed)
        self._dead = {n for n in range(scene.boards) if dice.random() < scene.unreachable}

    def run(self) -> Outcome:
        shares = [0, *(round(share * self.scene.boards) for share in self.scene.waves)]
        self._waves = deque(range(a, b) for a, b in itertools.pairwise(shares))
        self._next_wave()
        self.clock.run()
        self.out.workstation_cpu += self.scene.boards * (
            self.scene.client_cpu if self.scene.layout == "workers" else self.scene.cpu
        )
        return self.out

    def _next_wave(self) -> None:
        while self._waves and not len(self._waves[0]):
            self._waves.popleft()
        if not self._waves:
            return
        boards = self._waves.popleft()
        self._left = len(boards)
        for board in boards:
            self._waiting[self._driver(board)].append(board)
        for driver in range(len(self._free)):
            self._fill(driver)

    def _site(self, board: int) -> int:
        return board % self.scene.sites

    def _driver(self, board: int) -> int:
        return self._site(board) if self.scene.layout == "workers" else 0

    def _fill(self, driver: int) -> None:
        while self._free[driver] and self._waiting[driver]:
            self._free[driver] -= 1
            self._busy += 1
            self.out.boards_at_once = max(self.out.boards_at_once, self._busy)
            board = self._waiting[driver].popleft()
            if board in self._dead:
                self.clock.after(self.scene.timeout, partial(self._leave, board, fine=False))
            else:
                self._cores[driver].spend(self._cpu, partial(self._talk, board))

    def _talk(self, board: int) -> None:
        self.clock.after(self.scene.trips * self._rtt, lambda: self._transfer(board))

    def _transfer(self, board: int) -> None:
        site = self._site(board)
        if self.scene.layout == "workstation":
            self.out.workstation_bytes += self.scene.payload
            self._wan.send(site, self.scene.payload, lambda: self._check(board))
        elif self.scene.layout == "workers":
            self._at_site(site, lambda: self._lan.send(
                site, self.scene.payload, lambda: self._check(board)))  # fmt: skip
        else:
            self._expecting[site].append(lambda: self._check(board))
            self._relay(site)

    def _at_site(self, site: int, then: Callable[[], None]) -> None:
        if self._arrived[site]:
            then()
            return
        self._expecting[site].append(then)
        if not self._asked[site]:
            self._asked[site] = True
            self.out.workstation_bytes += self.scene.payload
            self._seed.send(site, self.scene.payload, lambda: self._come(site))

    def _come(self, site: int) -> None:
        self._arrived[site] = True
        for then in self._expecting[site]:
            then()

    def _relay(self, site: int) -> None:
        """The first board of a site gets it from the workstation, all others from a board."""
        waiting = self._expecting[site]
        if waiting and not self._seeded[site]:
            self._seeded[site] = True
            self.out.workstation_bytes += self.scene.payload
            then = waiting.pop(0)
            self._wan.send(site, self.scene.payload, lambda: self._handed(site, then, 1))
        while waiting and self._servers[site]:
            self._servers[site] -= 1
            then = waiting.pop(0)
            self._lan.send(site, self.scene.payload, partial(self._handed, site, then, 2))

    def _handed(self, site: int, then: Callable[[], None], servers: int) -> None:
        self._servers[site] += servers
        then()
        self._relay(site)

    def _check(self, board: int) -> None:
        seconds = self.scene.payload / self.scene.hashing + self.scene.device
        self.clock.after(seconds, lambda: self._leave(board, fine=True))

    def _leave(self, board: int, *, fine: bool) -> None:
        self.out.done += fine
        self.out.failed += not fine
        self.out.seconds = self.clock.now
        driver = self._driver(board)
        self._free[driver] += 1
        self._busy -= 1
        self._left -= 1
        self._fill(driver)
        if not self._left and self._waves:
            self.clock.after(self.scene.soak, self._next_wave)


def simulate(scene: Scene) -> Outcome:
    """Run a scene."""
    return Simulation(scene).run()


def human(seconds: float) -> str:
    """`42 s`, `3.4 min`, `2.1 h`, `4.6 d`."""
    for unit, size in (("d", 86400 * 1.5), ("h", 5400), ("min", 90)):
        if seconds >= size:
            return f"{seconds / {'d': 86400, 'h': 3600, 'min': 60}[unit]:.1f} {unit}"
    return f"{seconds:.0f} s"


CASES = (
    ("nothing changed", {"payload": 0.0, "device": 0.0, "trips": 4, "cpu": 0.025}),
    ("another prompt, 1 MB", {"payload": 1e6}),
    ("first deploy, 5 GB", {"payload": 5e9}),
    ("the same in waves", {"payload": 5e9, "waves": (0.01, 0.1, 0.5, 1.0), "soak": 600.0}),
)


def table(base: Scene, counts: tuple[int, ...]) -> list[tuple[str, str, list[Outcome]]]:
    """Rows: case, layout, one outcome a count. Fewer sites where there are fewer boards."""
    rows = []
    for name, changes in CASES:
        for layout in LAYOUTS:
            found = [
                simulate(replace(base, boards=n, sites=min(base.sites, max(1, n // 50)),
                                 layout=layout, **changes))
                for n in counts
            ]  # fmt: skip
            rows.append((name, layout, found))
    return rows


def svg(rows: list[tuple[str, str, list[Outcome]]], counts: tuple[int, ...], case: str) -> str:
    """Time over boards, both logarithmic, one line a layout."""
    colours = {"workstation": "#b3402a", "workers": "#1f6f8b", "relay": "#5b8c2a"}
    width, height, left, top = 640, 360, 80, 40
    lines = [(layout, found) for name, layout, found in rows if name == case]
    low, high = 60.0, max(one.seconds for _, found in lines for one in found) * 1.5

    def x(count: int) -> float:
        span = math.log(counts[-1] / counts[0])
        return left + (width - left - 150) * math.log(count / counts[0]) / span

    def y(seconds: float) -> float:
        share = math.log(max(seconds, low) / low) / math.log(high / low)
        return height - 50 - (height - 50 - top) * share

    title = f"Simulated: {case}, 1 GbE everywhere, 20 sites"
    font = 'font-family="sans-serif" font-size="13"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {font}>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{left}" y="22" font-size="15">{title}</text>',
    ]
    for seconds, word in ((60, "1 min"), (600, "10 min"), (3600, "1 h"), (36000, "10 h"),
                          (360000, "100 h")):  # fmt: skip
        if seconds < high:
            at = y(seconds)
            parts.append(f'<path d="M{left} {at:.0f}H{width - 150}" stroke="#ddd"/>')
            parts.append(f'<text x="{left - 8}" y="{at + 4:.0f}" text-anchor="end">{word}</text>')
    parts += [
        f'<text x="{x(count):.0f}" y="{height - 26}" text-anchor="middle">{count:,}</text>'
        for count in counts
    ]
    parts.append(f'<text x="{left}" y="{height - 6}">boards</text>')
    label = 0.0
    for layout, found in sorted(lines, key=lambda line: -line[1][-1].seconds):
        points = " ".join(
            f"{x(n):.0f},{y(o.seconds):.0f}" for n, o in zip(counts, found, strict=True)
        )
        colour = colours[layout]
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
        )
        label = max(y(found[-1].seconds) + 4, label + 15)
        parts.append(
            f'<text x="{width - 142}" y="{label:.0f}" fill="{colour}">{layout}: '
            f"{human(found[-1].seconds)}</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", default="100,1000,10000")
    parser.add_argument("--svg", type=Path)
    for one in fields(Scene):
        if one.name not in {"boards", "layout", "waves"}:
            name = "--" + one.name.replace("_", "-")
            parser.add_argument(name, type=type(one.default), default=one.default)
    args = vars(parser.parse_args())
    counts = tuple(int(word) for word in args.pop("counts").split(","))
    target = args.pop("svg")
    base = Scene(**args)
    rows = table(base, counts)
    print(f"{'case':22} {'layout':12}" + "".join(f"{n:>12,}" for n in counts) + "   ws GB  ws CPU")
    for name, layout, found in rows:
        last = found[-1]
        print(
            f"{name:22} {layout:12}"
            + "".join(f"{human(one.seconds):>12}" for one in found)
            + f"{last.workstation_bytes / 1e9:8.0f} {last.workstation_cpu:6.0f} s"
        )
    if target is not None:
        target.write_text(svg(rows, counts, "first deploy, 5 GB"), "utf-8")


if __name__ == "__main__":
    main()
