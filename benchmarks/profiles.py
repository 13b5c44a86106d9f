"""The store of profiles under load. Installs nothing, needs no board, writes to a folder of /tmp.

    python benchmarks/profiles.py --records 100000 --files 10000

Prints each figure as the inner time (in a process that runs) and, for commands, as the time of
the whole process, with the ratio of the import to a plain loop of json.load over the same files.
Records are made by chance of the shape of a true one (6 KB); nothing here is a measurement of an
NPU. Each figure is the median of --rounds, the best and the worst beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from fleet.model.plain import to_plain
from fleet.model.record import Metrics, Record
from fleet.profiles.exports import export
from fleet.profiles.imports import Importer
from fleet.profiles.store import ProfileStore
from fleet.profiles.store.database import writing
from fleet.profiles.store.rows import insert
from fleet.profiles.store.select import parse

FILTERS = (
    "host:board-07,runtime:2.51.0", "since:2026-03-01,until:2026-03-07", "tag:pilot", "last", "all",
)  # fmt: skip
GROUPS = ("host:board-07", "host:board-08")


def made(count: int) -> Iterator[Record]:
    """Records of runs with 50 boards, 20 repeats each, one run an hour."""
    chance = random.Random(7)
    facts = {"soc": {"chip": "QCS9075", "hexagon_arch": "v73"}, "nodes": ["/dev/x" * 9] * 40}
    files = {
        f"lib/libQnn{number:02d}.so": f"{chance.getrandbits(256):064x}" for number in range(16)
    }
    for number in range(count):
        run, rest = divmod(number, 1000)
        board, repeat = divmod(rest, 20)
        started = time.gmtime(1767225600 + run * 86400 + rest)
        metrics = Metrics(
            *(chance.gauss(4000, 40), 29, chance.gauss(158, 2), chance.gauss(183, 2), 31),
            *(chance.gauss(10, 0.1), chance.gauss(3090, 20)),
        )
        yield Record(
            run_id=time.strftime("%Y%m%d-%H%M%S-abcdef", time.gmtime(1767225600 + run * 86400)),
            host=f"board-{board:02d}", name=f"model-{run % 5}", release="3c6680f0b16fcb89",
            runner="genie", repeat=repeat, warmup=repeat == 0,
            started=time.strftime("%Y-%m-%dT%H:%M:%SZ", started), seconds=7.5, status=0,
            metrics=metrics, finish="eos", problems=(), emulated=True,
            argv=("genie-t2t-run", "-c", "genie_config.json"), env={"LD_LIBRARY_PATH": "/x/lib"},
            prompt_sha256="0" * 64, files=files,
            origin={"build_id": "2.51.0.260929181845" if run % 2 else "2.45.0.260326154327"},
            facts=facts, identity=f"host-key SHA256:{board:043d}", text="words " * 40,
            fleet="0.1.0", tags=("pilot",) if run % 10 == 0 else (),
        )  # fmt: skip


def timed(rounds: int, act: Callable[[], object]) -> str:
    """`0.012 s (0.011 to 0.020)`."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        act()
        took.append(time.perf_counter() - began)
    return f"{statistics.median(took):.3f} s ({min(took):.3f} to {max(took):.3f})"


def command(store: Path, *argv: str) -> Callable[[], object]:
    """A whole process of fleet."""
    words = [sys.executable, "-m", "fleet", "profiles", *argv, "--store", str(store)]

    def run() -> None:
        subprocess.run(words, check=True, capture_output=True)

    return run


def finding(folder: Path, count: int, rounds: int) -> None:
    """Lists, groups and exports of a large store."""
    path = folder / "large.db"
    with ProfileStore(path) as store:
        began = time.perf_counter()
        with writing(store.link):
            for record in made(count):
                insert(store.link, record, to_plain(record), "")
        say(f"{count} records made and put in", f"{time.perf_counter() - began:.1f} s")
        say("size of the file", f"{path.stat().st_size / 1e6:.0f} MB")
        for text in FILTERS:
            query = parse(text)
            say(
                f"list {text} ({store.count(query)} records)",
                timed(rounds, partial(store.list_runs, query, 50)),
            )
        say("as a process", timed(rounds, command(path, "list", FILTERS[0])))
        for text in GROUPS:
            query = parse(text)
            say(f"whole records of {text}", timed(1, partial(store.records, query)))
        for kind in ("jsonl", "csv"):
            target = folder / f"x.{kind}"
            say(f"export all as {kind}", timed(1, partial(export, store, parse(""), target)))


def importing(folder: Path, count: int, rounds: int) -> None:
    """record.json files as fleet leaves them, and Genie profiles; beside a plain json.load."""
    runs, genie = folder / "runs", folder / "genie"
    for record in made(count):
        below = runs / record.run_id / record.host / str(record.repeat)
        below.mkdir(parents=True)
        (below / "record.json").write_text(json.dumps(to_plain(record), indent=1), "utf-8")
    genie.mkdir()
    for number in range(count):
        (genie / f"run{number}.profile.json").write_text(json.dumps(_genie(number)), "utf-8")
    for name, root in (("record.json", runs), ("Genie profiles, raw files kept", genie)):
        plain, ours, cpu = [], [], []
        for turn in range(rounds):
            began = time.perf_counter()
            _plain(root)
            plain.append(time.perf_counter() - began)
            with ProfileStore(folder / f"{root.name}{turn}.db") as store:
                began, busy = time.perf_counter(), time.process_time()
                done = Importer(store).take([root])
                ours.append(time.perf_counter() - began)
                cpu.append(time.process_time() - busy)
            if done.new != count or done.bad:
                raise SystemExit(f"{done.new} of {count} came in; {done.bad[:3]}")
        mid = statistics.median(ours)
        say(
            f"import {count} {name}",
            f"{mid:.2f} s ({min(ours):.2f} to {max(ours):.2f}): {count / mid:.0f} a second, "
            f"{count / statistics.median(cpu):.0f} a second of CPU time; "
            f"json.load alone {statistics.median(plain):.2f} s: "
            f"{mid / statistics.median(plain):.1f} times",
        )
        whole = timed(1, command(folder / f"{root.name}-whole.db", "import", str(root)))
        say("  as a process", whole)
        again = folder / f"{root.name}0.db"
        with ProfileStore(again) as store:
            say("  all of it again", timed(1, partial(Importer(store).take, [root])))
    with ProfileStore(runs) as store:
        say(f"first look at {count} runs of fleet", timed(1, store.look))
        say("next look", timed(rounds, store.look))


def _plain(root: Path) -> None:
    for folder, _, names in os.walk(root):
        for name in names:
            with Path(folder, name).open("rb") as stream:
                json.load(stream)


def _genie(number: int) -> dict[str, Any]:
    def of(value: float, unit: str = "") -> dict[str, Any]:
        return {"value": value, "unit": unit}

    asked = {
        "type": "GenieDialog_query", "duration": 5726945 + number, "start": number, "stop": 0,
        "num-prompt-tokens": of(823), "prompt-processing-rate": of(1547.98, "toks/sec"),
        "time-to-first-token": of(531665 + number, "us"), "num-generated-tokens": of(200),
        "token-generation-rate": of(38.52, "toks/sec"), "token-generation-time": of(5191579, "us"),
    }  # fmt: skip
    created = {"type": "GenieDialog_create", "duration": 9, "init-time": of(1124713, "us")}
    component = {"name": "dialog0", "type": "dialog", "events": [created, asked]}
    return {"header": {"artifact_type": "GENIE_PROFILE"}, "components": [component]}


def say(what: str, figure: str) -> None:
    """One line of the result."""
    print(f"{what:60} {figure}", flush=True)


def main() -> None:
    """Both parts, in a folder that is removed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=100_000, help="in the large store")
    parser.add_argument("--files", type=int, default=10_000, help="of each kind to import")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="on which disk (default: the system's /tmp)")
    given = parser.parse_args()
    say("machine", f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        if given.records:
            finding(Path(folder), given.records, given.rounds)
        if given.files:
            importing(Path(folder), given.files, given.rounds)
    say("load at the end", f"{os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
