"""What one more costs: boards, files of a push, releases on a board; each with its slope.

    python benchmarks/growth.py --boards 1,10,50,100,200,500 --rounds 3
    python benchmarks/growth.py --files 100,1000,10000
    python benchmarks/growth.py --releases 100

Boards are names for one lab board, so that the figure is that of the workstation: CPU seconds and
peak memory of the whole process, at real-time priority. The slope is that of least squares,
beside the cost of one more in each step. Records of a store: benchmarks/profiles.py. Linux, root.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.child import Ran, run
from bench.fleetrows import environment
from bench.sources import SETTLED, tree
from rates import REAL_TIME

from fleet.lab import Lab

LIMIT = 300.0


class Ground:
    """One lab board under many names."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.folder = folder
        self._board = lab.boards[0]
        self._ssh = {name: f"{lab.folder.root}/{name}" for name in ("ssh_config", "known_hosts")}

    def inventory(self, count: int) -> Path:
        """`count` hosts, all of them the one board."""
        hosts = {f"b{number:04d}": {"host": self._board.name} for number in range(count)}
        path = self.folder / f"of{count}.yaml"
        data = {"all": {"vars": self._ssh, "hosts": hosts}}  # JSON is YAML
        path.write_text(json.dumps(data), "utf-8")
        return path

    def fleet(self, *words: str) -> Ran:
        """A whole process of fleet, which must succeed."""
        env = environment(self.folder / "state")
        argv = (*REAL_TIME, sys.executable, "-m", "fleet", *words)
        ran = run(argv, limit=LIMIT, env=env, cwd=self.folder)
        if not ran.ok:
            raise SystemExit(f"fleet {' '.join(words)}: {ran.words}")
        return ran


def told(what: str, counts: list[int], measure: Callable[[int], Ran], rounds: int) -> None:
    """A table: medians over rounds in which all counts take turns, then the slopes."""
    rows: dict[int, list[Ran]] = {count: [] for count in counts}
    measure(counts[0])  # bytecode and caches are there
    for _ in range(rounds):
        for count in counts:
            rows[count].append(measure(count))
    cpu = [statistics.median(ran.cpu for ran in rows[count]) for count in counts]
    rss = [statistics.median(ran.rss_mib for ran in rows[count]) for count in counts]
    print(f"| {what} | CPU s (min..max) | s | peak MiB | CPU ms for one more | kB for one more |")
    print("|---|---|---|---|---|---|")
    for n, count in enumerate(counts):
        spent = [ran.cpu for ran in rows[count]]
        wall = statistics.median(ran.seconds for ran in rows[count])
        more = count - counts[n - 1] if n else 0
        mine, its = (cpu[n], rss[n]), (cpu[n - 1], rss[n - 1])
        steps = f"{1000 * (mine[0] - its[0]) / more:.2f}" if more else ""
        steps += f" | {1049 * (mine[1] - its[1]) / more:.1f}" if more else " | "
        print(
            f"| {count:,} | {cpu[n]:.2f} ({min(spent):.2f}..{max(spent):.2f}) | {wall:.2f} "
            f"| {rss[n]:.1f} | {steps} |"
        )
    if len(counts) > 1:
        each, fixed = statistics.linear_regression(counts, cpu)
        kilo = statistics.linear_regression(counts, rss).slope * 1049
        print(f"\nslope: {1000 * each:.2f} ms of CPU and {kilo:.1f} kB, beside {fixed:.2f} s")


def releases(ground: Ground, count: int) -> None:
    """So many releases of one name, one file new in each: the first tens beside the last."""
    source, where = tree(ground.folder / "release", 20, 2), str(ground.inventory(1))
    words = ("push", "-i", where, "--name", "growing", "--keep", "10000", str(source))
    runs = [ground.fleet(*words)]
    for number in range(count - 1):
        path = source / "d00/f000"
        path.write_text(f"{number}\n")
        os.utime(path, (SETTLED + number, SETTLED + number))
        runs.append(ground.fleet(*words))
    print("| releases there | median s | CPU s |\n|---|---|---|")
    for first in (1, count // 2 - 4, count - 10):
        some = runs[first : first + 10]
        seconds = statistics.median(ran.seconds for ran in some)
        cpu = statistics.median(ran.cpu for ran in some)
        print(f"| {first} to {first + 9} | {seconds:.3f} | {cpu:.2f} |")
    idle = [ground.fleet(*words) for _ in range(5)]
    print(f"| {count}, nothing to do | {statistics.median(ran.seconds for ran in idle):.3f} "
          f"| {statistics.median(ran.cpu for ran in idle):.2f} |")  # fmt: skip
    slope = statistics.linear_regression(range(1, count), [ran.seconds for ran in runs[1:]]).slope
    print(f"\nslope: {1000 * slope:.2f} ms for one more")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--boards", default="", help="numbers of boards, with commas")
    parser.add_argument("--files", default="", help="numbers of files of 1 KiB, with commas")
    parser.add_argument("--releases", type=int, default=0, help="at least 20")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        with Lab.up(folder / "lab", count=1, base_port=0) as lab:
            ground = Ground(lab, folder)
            print(f"load before {os.getloadavg()[0]:.1f}\n")
            if given.boards:
                counts = [int(word) for word in given.boards.split(",")]
                places = {count: str(ground.inventory(count)) for count in counts}
                told("boards", counts, lambda n: ground.fleet("facts", "-i", places[n]),
                     given.rounds)  # fmt: skip
            if given.files:
                where, counts = str(ground.inventory(1)), [int(n) for n in given.files.split(",")]
                trees = {n: str(tree(folder / f"files{n}", n, 20, 1024)) for n in counts}
                for what in ("files, first", "files, nothing to do"):
                    told(what, counts, lambda n: ground.fleet("push", "-i", where, trees[n]),
                         1 if "first" in what else given.rounds)  # fmt: skip
            if given.releases:
                releases(ground, given.releases)


if __name__ == "__main__":
    main()
