"""One large file onto a lab board: fleet beside `cat | ssh` (aes128-gcm), scp and rsync.

All tools in turn within each round, on one board, loopback; ratios to `cat | ssh` of the same
round. Needs root on Linux (a namespace board). Run: python benchmarks/push.py --mb 512
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fleet.engine.session import Session
from fleet.engine.transfer.upload import Upload
from fleet.facts.gather import gather
from fleet.lab import Lab
from fleet.model.deadline import Deadline
from fleet.model.files import file_ref
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest
from fleet.model.plan import Blob

GCM = ("-o", "Ciphers=aes128-gcm@openssh.com")


class Bench:
    def __init__(self, lab: Lab, source: Path) -> None:
        self.lab, self.source = lab, source
        self.config = str(lab.folder.root / "ssh_config")
        self.host = Host(
            "lab001",
            ssh_config=lab.folder.root / "ssh_config",
            known_hosts=lab.folder.known_hosts,
        )

    def clean(self) -> None:
        self.lab.exec("lab001", ["sh", "-c", "rm -rf /home/ubuntu/fleet /home/ubuntu/big*"])

    def fleet(self) -> None:
        session = Session(self.host, lambda _: None)
        session.open()
        facts = gather(session.transport, self.host, Deadline(30))
        item = file_ref(self.source, "big")
        Upload(session, facts, Manifest("bench", (item,))).send([Blob(item)])
        session.close()

    def cat(self) -> None:
        with self.source.open("rb") as stream:
            argv = ["ssh", "-F", self.config, *GCM, "lab001", "cat > big.part && mv big.part big"]
            subprocess.run(argv, stdin=stream, check=True)

    def cat_hashed(self) -> None:
        with self.source.open("rb") as stream:
            there = "cat > big.part && sha256sum big.part && sync big.part && mv big.part big"
            argv = ["ssh", "-F", self.config, *GCM, "lab001", there]
            subprocess.run(argv, stdin=stream, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["sha256sum", self.source], check=True, stdout=subprocess.DEVNULL)

    def scp(self) -> None:
        argv = ["scp", "-q", "-F", self.config, *GCM, str(self.source), "lab001:big"]
        subprocess.run(argv, check=True)

    def rsync(self) -> None:
        rsh = f"ssh -F {self.config} {' '.join(GCM)}"
        subprocess.run(["rsync", "-a", "-e", rsh, str(self.source), "lab001:big"], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "big"
        source.write_bytes(os.urandom(args.mb * 1_000_000))
        with Lab.up(Path(folder) / "lab", count=1, kind="namespace", base_port=0) as lab:
            bench = Bench(lab, source)
            tools: dict[str, Callable[[], None]] = {
                "cat|ssh gcm": bench.cat,
                "cat|ssh gcm + hash + sync": bench.cat_hashed,
                "fleet (hash, sync, resume)": bench.fleet,
                "scp gcm": bench.scp,
            }
            if shutil.which("rsync") and not lab.exec("lab001", ["which", "rsync"]).returncode:
                tools["rsync -a gcm"] = bench.rsync
            seconds: dict[str, list[float]] = {name: [] for name in tools}
            for _ in range(args.rounds):
                for name, tool in tools.items():
                    bench.clean()
                    began = time.monotonic()
                    tool()
                    seconds[name].append(time.monotonic() - began)
            show(seconds, args.mb)


def show(seconds: dict[str, list[float]], size: int) -> None:
    base = next(iter(seconds.values()))
    print(f"{'tool':28} {'median s':>9} {'min..max':>14} {'MB/s':>6} {'x cat|ssh':>10}")
    for name, values in seconds.items():
        median = statistics.median(values)
        ratio = statistics.median(a / b for a, b in zip(values, base, strict=True))
        spread = f"{min(values):.2f}..{max(values):.2f}"
        print(f"{name:28} {median:9.2f} {spread:>14} {size / median:6.0f} {ratio:10.2f}")


if __name__ == "__main__":
    main()
