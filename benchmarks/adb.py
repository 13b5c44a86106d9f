"""Onto a lab phone over adb: fleet beside `adb push`, in turn within each round, one phone.

One large file, and 2,000 files of 4 KiB. `adb push` writes to the final path and believes the
size; fleet also hashes on the phone, syncs and renames. `stream only` is fleet's carrier without
that. Needs root on Linux. Run: python benchmarks/adb.py --mb 256
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fleet.config.inventory import load_inventory
from fleet.engine.session import Session
from fleet.engine.transfer.upload import Upload
from fleet.facts.gather import gather
from fleet.lab import Lab
from fleet.lab.adbserver import adb_program
from fleet.model.command import script
from fleet.model.deadline import Deadline, Stall
from fleet.model.files import file_ref
from fleet.model.manifest import Manifest
from fleet.model.plan import Blob
from fleet.ops.frames import CHUNK

THERE = "/data/local/tmp/pushed"
BLOCK = 1 << 20


class Bench:
    def __init__(self, lab: Lab, big: Path, many: Path) -> None:
        self.lab, self.big, self.many = lab, big, many
        host = load_inventory(lab.inventory).hosts[0]
        self.adb = [adb_program(), "-P", lab.adb_server.rpartition(":")[2], "-s", host.serial or ""]
        self.session = Session(host, lambda _: None)
        self.session.open()
        self.facts = gather(self.session.transport, host, Deadline(30))
        one = file_ref(big, "data/big")
        self.one = Manifest("big", (one,))
        self.all = Manifest(
            "many", tuple(file_ref(path, f"data/{path.name}") for path in sorted(many.iterdir()))
        )

    def clean(self) -> None:
        done = self.lab.exec("phone001", ["rm", "-rf", "/data/local/tmp/fleet", THERE])
        assert done.returncode == 0, done.stderr

    def push(self, *words: str) -> None:
        subprocess.run([*self.adb, *words], check=True, stdout=subprocess.DEVNULL)

    def push_big(self) -> None:
        self.push("push", str(self.big), THERE)

    def push_big_hashed(self) -> None:
        self.push("push", str(self.big), THERE)
        self.push("shell", f"sha256sum {THERE} && sync {THERE}")

    def push_many(self) -> None:
        self.push("push", str(self.many), THERE)

    def stream(self) -> None:
        count = self.big.stat().st_size // BLOCK
        command = script(f"dd bs={BLOCK} count={count} iflag=fullblock of={THERE} 2>/dev/null")
        assert self.session.transport.run(command, Stall(30), stdin=self._chunks()).ok

    def _chunks(self) -> Iterator[bytes]:
        with self.big.open("rb") as source:
            while chunk := source.read(CHUNK):
                yield chunk

    def fleet_big(self) -> None:
        self._send(self.one)

    def fleet_many(self) -> None:
        self._send(self.all)

    def _send(self, manifest: Manifest) -> None:
        blobs = [Blob(item) for item in manifest.blobs.values()]
        Upload(self.session, self.facts, manifest).send(blobs)


def measure(bench: Bench, tools: dict[str, Callable[[], None]], rounds: int) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in tools}
    for _ in range(rounds):
        for name, tool in tools.items():
            bench.clean()
            began = time.monotonic()
            tool()
            seconds[name].append(time.monotonic() - began)
    base = next(iter(seconds.values()))
    print(f"{'tool':34} {'median s':>9} {'min..max':>14} {'speed x adb push':>17}")
    for name, values in seconds.items():
        ratio = statistics.median(b / a for a, b in zip(values, base, strict=True))
        spread = f"{min(values):.2f}..{max(values):.2f}"
        print(f"{name:34} {statistics.median(values):9.2f} {spread:>14} {ratio:17.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=256, help="MiB of the large file")
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        big, many = Path(folder) / "big", Path(folder) / "many"
        big.write_bytes(os.urandom(args.mb << 20))
        many.mkdir()
        for number in range(args.files):
            (many / f"f{number:05d}").write_bytes(os.urandom(4096))
        with Lab.up(Path(folder) / "lab", count=0, phones=1, base_port=0) as lab:
            bench = Bench(lab, big, many)
            print(f"one file of {args.mb} MiB")
            big_tools = {
                "adb push": bench.push_big,
                "fleet, stream only": bench.stream,
                "adb push + sha256sum + sync": bench.push_big_hashed,
                "fleet (hash, sync, rename, resume)": bench.fleet_big,
            }
            measure(bench, big_tools, args.rounds)
            print(f"{args.files} files of 4 KiB")
            many_tools = {
                "adb push": bench.push_many,
                "fleet (hash, sync, rename)": bench.fleet_many,
            }
            measure(bench, many_tools, args.rounds)
            bench.session.close()


if __name__ == "__main__":
    main()
