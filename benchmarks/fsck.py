"""How fast the programs of `fleet status --verify` hash a store, beside `sha256sum` alone, in turn.

Both with the lowest priority, as the programs run on a device; the files leave the page cache
before each round. A local folder stands for the device: emulated. The median of each counts, of the
time and of the processor's time, which says the same on a machine that others use too.
Run: python -m benchmarks.fsck --gib 10
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from fleet.model.facts import Facts, Tools
from fleet.ops import fsck

BLOB = 64 << 20
SHELL = Facts(tools=Tools(sha256=("sha256sum",), dd_fullblock=True))
PYTHON = Facts(tools=Tools(python3=sys.executable, sha256=("sha256sum",)))


def fill(store: Path, size: int) -> list[Path]:
    """Blobs of 64 MiB whose names are their hashes."""
    store.mkdir(parents=True)
    base = os.urandom(BLOB - 8)
    made = []
    for number in range(size // BLOB):
        data = number.to_bytes(8, "big") + base
        made.append(store / hashlib.sha256(data).hexdigest())
        made[-1].write_bytes(data)
    return made


def forget(paths: list[Path]) -> None:
    """Out of the page cache."""
    for path in paths:
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def alone(paths: list[Path]) -> None:
    argv = ["nice", "-n", "19", "sha256sum", "--", *map(str, paths)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def ours(facts: Facts, paths: list[Path]) -> None:
    asked = fsck.ask(facts, "look", shas=None)
    done = subprocess.run(
        asked.command.argv, input=b"".join(asked.stdin), capture_output=True, check=True
    )
    found = fsck.Contents()
    found.take(done.stdout)
    found.check("store")
    if found.hashes != {path.name: path.name for path in paths}:
        sys.exit("the program did not hash every blob of the store")


def seconds(work: Callable[[], None]) -> tuple[float, float]:
    """By the clock, and of the processor."""
    began, before = time.monotonic(), os.times()
    work()
    took, after = time.monotonic() - began, os.times()
    return took, sum(after[2:4]) - sum(before[2:4])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gib", type=float, default=1.0, help="size of the store")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the store is made; default: temporary")
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="fsck-", dir=options.folder))
    try:
        paths = fill(base / "store", int(options.gib * (1 << 30)))
        rows = {
            "sha256sum alone": lambda: alone(paths),
            "sh": lambda: ours(structs.replace(SHELL, base_dir=str(base)), paths),
            "Python": lambda: ours(structs.replace(PYTHON, base_dir=str(base)), paths),
        }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in rows}
        for _ in range(options.rounds):
            for name, work in rows.items():
                forget(paths)
                taken[name].append(seconds(work))
    finally:
        shutil.rmtree(base)
    median = {
        name: [statistics.median(column) for column in zip(*rounds, strict=True)]
        for name, rounds in taken.items()
    }
    for name, (took, worked) in median.items():
        first = median["sha256sum alone"]
        print(
            f"{name:<16} {took:7.1f} s {len(paths) * BLOB / took / 1e6:6.0f} MB/s   "
            f"{first[0] / took:.2f} of sha256sum alone; processor {worked:.1f} s, "
            f"{first[1] / worked:.2f}"
        )


if __name__ == "__main__":
    main()
