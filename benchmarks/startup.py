"""Processor time before a command does anything: help, TAB, and up to the first connect.

    python benchmarks/startup.py --rounds 15
    python benchmarks/startup.py --before ../main

The board is a socket that accepts: at that instant the kernel is asked what all threads of the
command have used (/proc/PID/task/*/schedstat, nanoseconds). Bytecode is there, as in an installed
fleet. Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

REAL_TIME = ("chrt", "-r", "10")
HERE = Path(__file__).parents[1]
LIMIT = 60.0
PLAYBOOK = "playbooks/tiny-genie.yaml"
Spent = tuple[float, float]  # seconds of processor time, and of the clock


def whole(argv: Sequence[str], env: Mapping[str, str], where: Path) -> Spent:
    """A command until it ends."""
    began = time.monotonic()
    child = subprocess.Popen(
        argv, env=env, cwd=where, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(argv)}: exit {child.returncode}")
    return usage.ru_utime + usage.ru_stime, time.monotonic() - began


def to_connect(
    argv: Sequence[str], env: Mapping[str, str], where: Path, board: socket.socket
) -> Spent:
    """A command until its first connection to the board; then it is ended."""
    began = time.monotonic()
    child = subprocess.Popen(
        argv, env=env, cwd=where, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    with selectors.DefaultSelector() as waiting:
        waiting.register(board, selectors.EVENT_READ)
        if not waiting.select(LIMIT):
            raise SystemExit(f"{' '.join(argv)}: no connection within {LIMIT:g} s")
    spent, wall = cpu(child.pid), time.monotonic() - began
    child.kill()
    child.wait()
    board.accept()[0].close()
    return spent, wall


def cpu(pid: int) -> float:
    """Seconds that all threads of a process have used."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text("utf-8").split()[0]) for task in tasks) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--before", type=Path, help="another checkout, as rows of its own")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name, socket.socket() as board:
        folder = Path(name)
        board.bind(("127.0.0.1", 0))
        board.listen(8)
        port = board.getsockname()[1]
        lab, phones, file = folder / "lab.yaml", folder / "phones.yaml", folder / "file"
        hosts = {"evk": {"host": "127.0.0.1", "port": port}}
        lab.write_text(json.dumps({"all": {"hosts": hosts}}), "utf-8")
        phone = {"transport": "adb", "serial": "x", "adb_server": f"127.0.0.1:{port}"}
        phones.write_text(json.dumps({"all": {"hosts": {"s24": phone}}}), "utf-8")
        file.write_bytes(b"x")
        commands = {
            "--help": ("--help",),
            "TAB behind `fleet pu`": (),
            "push, to the first connect": ("push", "-i", str(lab), str(file)),
            "push to a phone, to the first connect": ("push", "-i", str(phones), str(file)),
            "deploy, to the first connect": ("deploy", "-i", str(lab), PLAYBOOK),
            "status, to the first connect": ("status", "-i", str(lab)),
        }
        sides = {"": HERE} | ({"before": given.before.resolve()} if given.before else {})
        rows: dict[tuple[str, str], list[Spent]] = {}
        base = os.environ | {"FLEET_HOME": f"{folder}/home", "NO_COLOR": "1",
                             "PYTHONDONTWRITEBYTECODE": "", "HOME": str(folder)}  # fmt: skip
        load = os.getloadavg()[0]
        for number in range(given.rounds + 1):
            for side, checkout in list(sides.items())[:: 1 if number % 2 else -1]:
                env = base | {"PYTHONPATH": str(checkout),
                              "PYTHONPYCACHEPREFIX": f"{folder}/pyc{side}"}  # fmt: skip
                for what, words in commands.items():
                    argv = (*REAL_TIME, sys.executable, "-m", "fleet", *words)
                    if not words:
                        env = env | {"_FLEET_COMPLETE": "complete_bash",
                                     "COMP_WORDS": "fleet pu", "COMP_CWORD": "1"}  # fmt: skip
                        spent = whole(argv, env, checkout)
                        del env["_FLEET_COMPLETE"]
                    elif "connect" in what:
                        spent = to_connect(argv, env, checkout, board)
                    else:
                        spent = whole(argv, env, checkout)
                    if number:  # bytecode is there
                        rows.setdefault((what, side), []).append(spent)
    print(f"{given.rounds} rounds, load before {load:.1f}\n")
    print("| what | CPU s (min..max) | wall s |\n|---|---|---|")
    for (what, side), samples in rows.items():
        used = [spent for spent, _ in samples]
        wall = statistics.median(wall for _, wall in samples)
        row = f"{what}, {side}" if side else what
        print(f"| {row} | {statistics.median(used):.3f} ({min(used):.3f}..{max(used):.3f}) "
              f"| {wall:.3f} |")  # fmt: skip


if __name__ == "__main__":
    main()
