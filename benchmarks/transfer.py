"""fleet beside its peers: how long files take onto a board. Installs nothing.

    python benchmarks/transfer.py --peers-python VENV/bin/python --docs figures.md

All tools in turn within each round, on lab boards on loopback, whole processes timed, results
hashed on the board after each push; what is measured is written after each scenario, and
--resume goes on after a cut. Peers are taken where they are found: system tools on the
PATH, Python tools in the environment of --peers-python (pip install fabric asyncssh ansible
pyinfra adbutils); what is missing is named. Namespace boards and phones with a real adbd need
root on Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import shlex
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.compare import Bench, say
from bench.crowd import many_boards, memory
from bench.ending import Cut, tidy
from bench.fleetrows import has_push
from bench.ground import BoardGround, room_for
from bench.keeping import Keeper, Outputs, done_of, results_of, resumed
from bench.link import slow
from bench.machine import Machine, look
from bench.phone import over_adb
from bench.scenarios import further_change, many_files, nothing_changed, one_blob, small_change
from bench.stats import Result
from bench.table import section

from fleet.lab import Lab
from fleet.model.errors import FleetError

ON_ONE: dict[str, Callable[[Bench, BoardGround], Result | list[Result]]] = {
    "a": one_blob,
    "b": many_files,
    "c": nothing_changed,
    "d": small_change,
    "h": further_change,
    "g": slow,
}
OTHERS: dict[str, Callable[[Bench], Result | list[Result]]] = {
    "e": over_adb,
    "f": many_boards,
    "m": memory,
}
ALL = "abcdhefgm"
GIB = 1 << 30
NEED = {
    "a": 4 * GIB,
    "b": GIB // 8,
    "c": 6 * GIB,
    "d": 6 * GIB,
    "h": 8 * GIB,
    "e": GIB,
    "f": GIB,
    "g": GIB // 2,
    "m": GIB,
}
LIMIT, LIMITS = 120.0, {"f": 900.0}  # s for one run of a peer: Ansible takes 150 for 50 boards


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--scenario", default=ALL, help="letters: a blob, b files, c no change, d small change, "
        "h more of them, e adb, f many boards, g slow link, m memory by boards")  # fmt: skip
    add("--rounds", type=int, default=5)
    add("--scale", type=float, default=1.0, help="0.1: a tenth of the sizes and boards")
    add("--tools", default="", help="only peers whose names hold one of these (commas)")
    add("--peers-python", type=Path, help="an interpreter that has the Python peers")
    add("--limit", type=float, help=f"longest time of one run of a peer, s; {LIMIT:g}, but "
        f"{', '.join(f'{one} {limit:g}' for one, limit in LIMITS.items())}")  # fmt: skip
    add("--boards", choices=("auto", "namespace", "user"), default="auto")
    add("--crowd", type=int, default=50, help="boards of scenario f")
    add("--memory", default="10,50,200", help="numbers of boards of scenario m")
    add("--rtt", default="50,100", help="round-trip times of the link of g, ms")
    add("--mbit", type=float, default=100.0, help="rate of the link of g")
    add("--disk", action="store_true", help="boards and sources on disk, not in memory")
    add("--json", type=Path, help="write all figures there")
    add("--resume", type=Path, help="a --json file of a run that was cut: what it has is kept; "
        "written there, too, without --json")  # fmt: skip
    add("--from", dest="read", type=Path, nargs="+", help="measure nothing, show these files")
    add("--svg", type=Path, help="draw the chart there")
    add("--docs", type=Path, help="write a page there, with the chart beside it")
    given = parser.parse_args()
    given.scenario = given.scenario.replace(",", "")
    if not given.scenario or set(given.scenario) - set(ALL):
        parser.error(f"--scenario takes letters of {ALL}")
    given.json = given.json or given.resume
    return given


def bench_of(given: argparse.Namespace, folder: Path) -> Bench:
    counts = tuple(max(2, round(int(one) * given.scale)) for one in given.memory.split(","))
    return Bench(
        folder,
        given.rounds,
        given.scale,
        given.limit or LIMIT,
        # not resolved: the link in an environment is what makes it one
        given.peers_python.absolute() if given.peers_python else None,
        tuple(word for word in given.tools.split(",") if word),
        given.boards,
        max(2, round(given.crowd * given.scale)),
        tuple(sorted(set(counts))),
        tuple(float(one) for one in given.rtt.split(",")),
        given.mbit,
    )


def greeting(port: int) -> str:
    """What an sshd says first: `OpenSSH_9.2p1`."""
    with socket.create_connection(("127.0.0.1", port), 10) as link:
        said = link.recv(256).decode("ascii", "replace")
    return said.strip().rpartition("-2.0-")[2] or said.split("-", 2)[-1].strip()


def measure(given: argparse.Namespace, folder: Path) -> dict[str, object]:
    """All scenarios that were not yet done, each written when it is."""
    bench = bench_of(given, folder)
    if not has_push():
        say("this fleet has no `push` yet: its rows are those of the Python API")
    machine = look(bench.peers, "?", "boards on disk" if given.disk else "boards in memory")
    if machine.busy:
        say(f"WARNING: the load is {machine.load:.2f}; figures of a busy machine claim nothing")
    letters = [one for one in given.scenario if one not in earlier(given).get("done", ())]
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab.up(folder / "lab", count=1, kind=bench.kind, base_port=0))
        ground = BoardGround(lab, folder)
        ground.give_rsync()
        machine = replace(machine, board_ssh=greeting(ground.endpoint.port))
        keeper = keeper_of(given, machine)
        bench.keep = keeper.partial
        for letter in sorted(letters, key=lambda one: one in OTHERS):
            if letter in OTHERS:
                stack.close()  # these have labs of their own
            say(f"scenario {letter}")
            bench.limit = given.limit or LIMITS.get(letter, LIMIT)
            work = OTHERS.get(letter)
            found = work(bench) if work else ON_ONE[letter](bench, ground)
            keeper.whole(letter, _list(found))
    keeper.outputs.write([keeper.run])
    return keeper.run


def earlier(given: argparse.Namespace) -> dict[str, Any]:
    """The run that is gone on with; nothing of a file that is not there yet."""
    if given.resume is None or not given.resume.exists():
        return {}
    found: dict[str, Any] = json.loads(given.resume.read_text("utf-8"))
    return {**found, "done": done_of(found)}


def keeper_of(given: argparse.Namespace, machine: Machine) -> Keeper:
    run: dict[str, Any] = {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": shlex.join(["python", "benchmarks/transfer.py", *_shown()]),
        "scale": given.scale,
        "rounds": given.rounds,
        "push": has_push(),
        "machine": {**machine.as_dict(), "line": machine.line},
        "done": [],
        "results": [],
    }
    before = earlier(given)
    if before:
        try:
            run = resumed(before, run)
        except ValueError as error:
            raise SystemExit(f"{given.resume}: {error}") from error
        say(f"done before: {', '.join(run['done']) or 'nothing'}")
    return Keeper(run, Outputs(given.json, given.svg, given.docs))


def _list(found: Result | list[Result]) -> list[Result]:
    return found if isinstance(found, list) else [found]


def run(given: argparse.Namespace) -> dict[str, object]:
    """Measure in a folder that goes at the end, however it comes; everything as plain data."""
    top = Path(tempfile.gettempdir() if given.disk else "/dev/shm")
    if not top.is_dir():
        raise SystemExit(f"{top} is not there: --disk measures with the disk in it")
    need = max(NEED[letter] for letter in given.scenario) * max(given.scale, 0.02)
    why = room_for(top, int(need))
    if why:
        raise SystemExit(f"{why}: --scale 0.5 needs half, --disk uses the disk")
    with tidy(top) as folder:
        return measure(given, folder)


def _shown() -> list[str]:
    """The arguments without paths of this machine."""
    return [Path(one).name if one.startswith("/") else one for one in sys.argv[1:]]


def main() -> None:
    given = options()
    try:
        runs = [json.loads(one.read_text("utf-8")) for one in given.read or ()] or [run(given)]
    except Cut as error:
        kept = given.json is not None and given.json.exists()
        say(f"cut; --resume {given.json} goes on" if kept else "cut; nothing was kept")
        raise SystemExit(error.code) from error
    except FleetError as error:
        raise SystemExit(f"{error.message}\n{error.hint}") from error
    if given.read:
        Outputs(given.json, given.svg, given.docs).write(runs)
    for one in runs:
        print(f"{one['date']}, {one['rounds']} rounds: {one['machine']['line']}\n")
    print("\n\n".join(section(one) for one in results_of(runs)))


if __name__ == "__main__":
    main()
