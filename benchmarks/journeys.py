"""What a newcomer reads: files and functions of fleet that three journeys enter, and its imports.

    python benchmarks/journeys.py --runtimes ~/.local/share/fleet/runtimes
    python benchmarks/journeys.py --runtimes ... --before ../main --python ../main/.venv/bin/python

Each command runs in a Python of its own, which notes every function of the package that is entered
(sys.setprofile, in all threads); module bodies, lambdas and comprehensions are not counted. The
board is a lab board: emulated. `--runtimes` is a store with a QAIRT runtime for x86-64 Linux; the
deploy is playbooks/tiny-genie.yaml. `--before` is another checkout, with a Python that has its
packages.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).parents[1]
LIMIT = 600.0
LOG = "[ERROR] QnnDsp <E> DspTransport.openSession qnn_open failed, 0x80000406, prio 100\n"
PLAYBOOK = "playbooks/tiny-genie.yaml"
TRACER = """
import atexit, json, os, sys, threading
package, target = sys.argv[1] + os.sep, sys.argv[2]
seen, mine = set(), os.getpid()

def look(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(package) and code.co_name[0] != "<":
        seen.add((code.co_filename[len(package):], code.co_qualname))

def note():
    if os.getpid() == mine:
        with open(target, "w", encoding="utf-8") as stream:
            json.dump(sorted(seen), stream)

atexit.register(note)
threading.setprofile(look)
sys.setprofile(look)
sys.argv = ["fleet", *sys.argv[3:]]
from fleet.cli.entry import main
main()
"""
Entered = list[tuple[str, str]]


class Side:
    """One checkout with its Python, and a lab of its own."""

    def __init__(self, tree: Path, python: Path, folder: Path, runtimes: Path) -> None:
        self.tree, self._python, self._folder = tree.resolve(), python, folder
        (folder / "home").mkdir(parents=True)
        (folder / "home" / "runtimes").symlink_to(runtimes.resolve())
        self._env = os.environ | {
            "PYTHONPATH": str(self.tree), "FLEET_HOME": f"{folder}/home", "NO_COLOR": "1",
        }  # fmt: skip

    def fleet(self, *words: str, allowed: Sequence[int] = (0,)) -> str:
        """Run a command of this side and return its output."""
        return self._run((str(self._python), "-m", "fleet", *words), allowed)

    def entered(self, *words: str, allowed: Sequence[int] = (0,)) -> Entered:
        """Run a command and return file and name of each function that it entered."""
        target = self._folder / "entered.json"
        argv = (str(self._python), "-c", TRACER, str(self.tree / "fleet"), str(target), *words)
        self._run(argv, allowed)
        return [(file, name) for file, name in json.loads(target.read_text("utf-8"))]

    def _run(self, argv: Sequence[str], allowed: Sequence[int]) -> str:
        done = subprocess.run(
            argv, env=self._env, cwd=self._folder, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=LIMIT, check=False,
        )  # fmt: skip
        if done.returncode not in allowed:
            raise SystemExit(f"{' '.join(argv[-6:])}: exit {done.returncode}\n{done.stderr}")
        return done.stdout

    def journeys(self) -> Iterator[tuple[str, Entered]]:
        """Each journey with what it entered."""
        payload, log = self._folder / "payload", self._folder / "run.log"
        payload.mkdir()
        for number in range(8):
            (payload / f"file{number}.bin").write_bytes(bytes([number]) * 4096)
        log.write_text(LOG, "utf-8")
        lab, playbook = self._folder / "lab", str(self.tree / PLAYBOOK)
        self.fleet("lab", "up", "--count", "1", "--kind", "user", "--port", "0", "--dir", str(lab))
        try:
            board = ("-i", str(lab / "inventory.yaml"))
            self.fleet("push", *board, str(payload))
            yield "a push that finds nothing to do", self.entered("push", *board, str(payload))
            yield "first deploy", self.entered("deploy", *board, playbook)
            found = self.entered("doctor", "--log", str(log), allowed=(0, 1))
            yield "log line to cause", found
        finally:
            self.fleet("lab", "down", "--dir", str(lab))


def size(tree: Path) -> tuple[int, int, int]:
    """Return files, raw lines, and lines of import statements of the package."""
    files = sorted((tree / "fleet").rglob("*.py"))
    lines = imports = 0
    for path in files:
        text = path.read_text("utf-8")
        lines += len(text.splitlines())
        imports += sum(
            (node.end_lineno or node.lineno) - node.lineno + 1
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Import | ast.ImportFrom)
        )
    return len(files), lines, imports


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, help="another checkout, in columns of its own")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="its Python")
    parser.add_argument("--runtimes", type=Path, required=True, help="a store of runtimes")
    given = parser.parse_args()
    rows: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        sides = [("now", HERE, Path(sys.executable))]
        if given.before:
            sides.insert(0, ("before", given.before, given.python.absolute()))
        for label, tree, python in sides:
            side = Side(tree, python, Path(name) / label, given.runtimes)
            for what, entered in side.journeys():
                rows.setdefault(what, []).append(
                    f"{len({file for file, _ in entered})} files, {len(entered)} functions"
                )
            files, lines, imports = size(side.tree)
            text = f"{files} files, {lines:,} lines, imports {imports / lines:.1%}"
            rows.setdefault("the package", []).append(text)
    print("| | " + " | ".join(label for label, *_ in sides) + " |")
    print("|---" * (len(sides) + 1) + "|")
    for what, cells in rows.items():
        print(f"| {what} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
