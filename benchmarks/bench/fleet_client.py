"""fleet through its Python API, with the time of each part.

python fleet_client.py -i INVENTORY SOURCE --name NAME [--limit HOST]

Makes a plain release of the files as `fleet push` does, and prints what it took. Times are
seconds on an open connection unless they say otherwise; of several hosts, those of the last.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from fleet.bundles.hashes import HashCache
from fleet.config.inventory import load_inventory, select
from fleet.engine.applying import apply_plan
from fleet.engine.leasing import Lease
from fleet.engine.planning import ask_state, facts_of
from fleet.engine.pool import DeviceResult, on_every_device
from fleet.engine.records import new_run_id
from fleet.engine.session import Session
from fleet.model.events import Event, Progress, StepStarted
from fleet.model.facts import Facts
from fleet.model.files import FileRef
from fleet.model.manifest import Manifest
from fleet.model.plan import Action, DevicePlan
from fleet.ops.release import actions_for

KEEP = 3


class Clock:
    """What the engine says of its work, as times."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        self._last_byte = self._step_began = 0.0
        self._step = ""

    def hear(self, event: Event) -> None:
        now = time.perf_counter()
        if isinstance(event, Progress) and event.done >= event.total:
            self._last_byte = now
        if isinstance(event, StepStarted):
            self.end_step()
            self._step, self._step_began = event.step, now

    def end_step(self) -> None:
        now = time.perf_counter()
        if self._step:
            self.figures[self._step] = now - self._step_began
        if self._step == "send" and self._last_byte:
            self.figures["after_last_byte"] = now - self._last_byte
        self._step = ""


def manifest_of(source: Path, name: str) -> Manifest:
    cache = HashCache()
    top = source.parent
    files = sorted(source.rglob("*")) if source.is_dir() else [source]
    refs = [
        FileRef(path, path.relative_to(top).as_posix(), path.stat().st_size, cache.sha256(path))
        for path in files
        if path.is_file()
    ]
    cache.save()
    return Manifest(name, tuple(refs))


def planned(session: Session, facts: Facts, manifest: Manifest) -> tuple[Action, ...]:
    """What is to be done on the device; one round trip."""
    return actions_for(manifest, ask_state(session, facts, manifest), KEEP)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-i", "--inventory", type=Path, required=True)
    parser.add_argument("source", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--limit", default="all")
    options = parser.parse_args()
    clock, run_id = Clock(), new_run_id()
    began = time.perf_counter()
    manifest = manifest_of(options.source.absolute(), options.name)
    clock.figures["host_hash"] = time.perf_counter() - began

    def push(session: Session, result: DeviceResult) -> None:
        start = time.perf_counter()
        clock.figures["connect"] = start - dialled
        with Lease(session, f"push {manifest.name}", run_id) as lease:
            facts = facts_of(session)
            looked = time.perf_counter()
            actions = planned(session, facts, manifest)
            clock.figures |= {"facts": looked - start, "state": time.perf_counter() - looked}
            if actions:
                lease.take()
            apply_plan(session, DevicePlan(session.host, facts, "", manifest, (), actions), run_id)
            clock.end_step()
            result.outcome = "changed" if actions else "unchanged"
        clock.figures["inner"] = time.perf_counter() - start + clock.figures["host_hash"]

    hosts = select(load_inventory(options.inventory), [options.limit])
    dialled = time.perf_counter()
    results = on_every_device(hosts, push, clock.hear, parallel=16)
    for one in results:
        if one.error is not None:
            print(f"{one.host.name}: {one.error.message}", file=sys.stderr)
    last = results[-1]
    clock.figures |= {
        "round_trips": last.round_trips,
        "payload_bytes": sum(one.bytes_sent for one in results),
        "changed": sum(one.outcome == "changed" for one in results),
    }
    print("FIGURES", json.dumps(clock.figures))
    return 0 if all(one.fine for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
