"""What a board costs the workstation: CPU seconds, memory, bytes and round trips, by fleet size.

Lab boards on loopback share the CPU with the workstation's process, so wall time says little;
CPU seconds are those of the one process that works on the boards, without its import. Each
figure is a process of its own. Run: python -m benchmarks.boards --counts 10,50,200
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fleet.config.inventory import load_inventory
from fleet.config.playbook import load_playbook
from fleet.engine.cluster.connecting import executor_for
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.options import DeployOptions
from fleet.engine.pool import DeviceResult, PoolOptions, Remote, on_every_device
from fleet.engine.session import Session
from fleet.engine.states import gather_facts
from fleet.lab import Lab
from fleet.profiles.runs import RunStore
from fleet.runtimes.store import RuntimeStore
from tests.runners.kits import gguf

WORKS = ("facts", "deploy", "no-op")
PLAYBOOK = """
name: scale
bundle: {path: bundle, kind: llama.cpp}
run: {program: llama-bench, max_tokens: 4, options: {prompt_tokens: 8}}
"""


def files(folder: Path, payload: int) -> None:
    (folder / "bundle").mkdir()
    (folder / "bundle" / "model.gguf").write_bytes(gguf(os.urandom(payload)))
    (folder / "llama-bench").write_text("#!/bin/sh\necho scale\n")
    (folder / "playbook.yaml").write_text(PLAYBOOK)


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def one(
    what: str, inventory: Path, folder: Path, parallel: int, executor: Remote | None
) -> dict[str, float]:
    """Runs in a process of its own."""
    sent: list[int] = []
    received: list[int] = []

    def measured(session: Session, result: DeviceResult[Any]) -> None:
        gather_facts(session, result)
        sent.append(session.traffic.bytes_sent)
        received.append(session.traffic.bytes_received)

    hosts = load_inventory(inventory).hosts
    options = DeployOptions(run="never", offline=True, parallel=parallel)
    operation = Operation(
        load_playbook(folder / "playbook.yaml"),
        hosts,
        lambda _: None,
        options=options,
        resources=Resources(RuntimeStore(folder / "runtimes"), RunStore(folder / "runs"), executor),
    )
    before, cpu, wall = resident(), time.process_time(), time.monotonic()
    if what == "facts":
        work = measured if executor is None else gather_facts
        pool = PoolOptions[Any](parallel=parallel, executor=executor)
        results = on_every_device(hosts, work, lambda _: None, pool)
    else:
        results = operation.deploy()
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    bad = [one.error for one in results if one.error]
    if bad:
        raise SystemExit(f"{len(bad)} boards failed: {bad[0]}")
    count = len(results)
    return {
        "cpu_ms": 1000 * cpu / count,
        "wall_s": wall,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "grown_kb": (resident() - before) / 1024 / count,
        "trips": sum(one.round_trips for one in results) / count,
        "payload": sum(one.bytes_sent for one in results) / count,
        "control": sum(sent + received) / count if sent else 0,
        "seconds": sum(one.seconds for one in results) / count,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", default="10,50,200")
    parser.add_argument("--parallel", type=int, default=16)
    parser.add_argument("--kind", default="auto", help="namespace, user or auto")
    parser.add_argument("--payload-kb", type=int, default=64)
    parser.add_argument("--executor", help="dask://HOST:PORT; CPU is then the workstation's share")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        what, inventory, folder = args.one
        here = contextlib.nullcontext() if args.executor is None else executor_for(args.executor)
        with here as executor:
            print(json.dumps(one(what, Path(inventory), Path(folder), args.parallel, executor)))
        return
    print("boards work    CPU/board  peak   growth/board  trips  payload  control  s/board  wall")
    for count in map(int, args.counts.split(",")):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            files(folder, args.payload_kb << 10)
            with Lab.up(folder / "lab", count=count, kind=args.kind, base_port=0) as lab:
                for what in WORKS:
                    argv = [
                        sys.executable,
                        "-m",
                        "benchmarks.boards",
                        "--parallel",
                        str(args.parallel),
                    ]
                    argv += ["--executor", args.executor] if args.executor else []
                    argv += ["--one", what, str(lab.inventory), str(folder)]
                    done = subprocess.run(argv, capture_output=True, text=True, check=False)
                    if done.returncode:
                        raise SystemExit(done.stderr[-2000:])
                    row = json.loads(done.stdout)
                    print(
                        f"{count:6} {what:7} {row['cpu_ms']:6.0f} ms {row['peak_mb']:5.0f} MB "
                        f"{row['grown_kb']:8.0f} kB {row['trips']:7.1f} {row['payload']:8.0f} "
                        f"{row['control']:8.0f} {row['seconds']:7.2f} {row['wall_s']:6.1f} s",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
