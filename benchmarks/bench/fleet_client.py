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

from fleet.config.inventory import load_inventory, select
from fleet.engine.deploy.push import Push
from fleet.engine.pool import DeviceResult
from fleet.engine.session import Session
from fleet.model.events import Event, Progress, StepStarted


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


class Timed(Push):
    """A push that says what it took on the open connection."""

    clock: Clock
    dialled: float

    def _push(self, session: Session, result: DeviceResult[None]) -> None:
        start = time.perf_counter()
        self.clock.figures["connect"] = start - self.dialled
        super()._push(session, result)
        self.clock.end_step()
        self.clock.figures["inner"] = time.perf_counter() - start + self.clock.figures["host_hash"]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-i", "--inventory", type=Path, required=True)
    parser.add_argument("source", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--limit", default="all")
    options = parser.parse_args()
    clock = Clock()
    hosts = select(load_inventory(options.inventory), [options.limit])
    began = time.perf_counter()
    work = Timed(options.name, [options.source.absolute()], hosts, clock.hear)
    work.clock = clock
    work.dialled = time.perf_counter()
    clock.figures["host_hash"] = work.dialled - began
    results = work.push()
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
