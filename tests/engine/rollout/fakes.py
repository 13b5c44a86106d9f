"""An executor without devices: what becomes of each is written in a table."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.engine.pool import DeviceResult
from fleet.engine.rollout.driver import Done, Ending, Rollout
from fleet.engine.rollout.journal import Journal
from fleet.engine.rollout.lines import PlanLine, RunHeader, StepLine
from fleet.engine.rollout.state import RolloutDevice
from fleet.engine.rollout.waves import Wave, plan_waves
from fleet.model.errors import WorkstationError
from fleet.model.events import Event
from fleet.model.inventory import Host
from fleet.model.rollout import Amount, RolloutSpec

OURS = "ours"  # an outcome: the workstation could not keep what it did


class KilledError(Exception):
    """The process is gone: nothing after it is written."""


def names(count: int) -> list[str]:
    return [f"d{number:03}" for number in range(1, count + 1)]


def spec(**values: Any) -> RolloutSpec:
    """Amounts as text, as a playbook has them."""
    for key in ("canary", "max_failed", "max_unreachable"):
        if key in values:
            values[key] = Amount.parse(values[key])
    values["waves"] = tuple(Amount.parse(one) for one in values.get("waves", ()))
    return RolloutSpec(**values)


def header(waves: Sequence[Wave], rules: RolloutSpec) -> RunHeader:
    return RunHeader(run="run", name="app", rollout=rules, waves=tuple(waves))


def result(name: str, outcome: str) -> DeviceResult[Any]:
    if outcome == OURS:
        error = WorkstationError("this workstation cannot write /x: No space left on device")
        return DeviceResult(Host(name), "failed", error.message, error=error)
    return DeviceResult(Host(name), outcome, f"it is {outcome}")


@dataclass
class FakeExecutor:
    """Works on `parallel` devices at a time, which end in a random order.

    `outcomes` names what is not `changed`; `looks` what the look finds; `backs` how the way
    back ends. `die_after` results it is killed.
    """

    journal: Journal
    outcomes: Mapping[str, str] = field(default_factory=dict)
    looks: Mapping[str, str] = field(default_factory=dict)
    backs: Mapping[str, str] = field(default_factory=dict)
    parallel: int = 4
    seed: int = 0
    die_after: int | None = None
    fresh: frozenset[str] = frozenset()
    attempted: list[str] = field(default_factory=list)
    at_work: int = 0
    most: int = 0
    looked: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def deploy(self, todo: Sequence[str], admit: Callable[[str], bool], done: Done) -> None:
        dice = random.Random(self.seed)
        waiting = list(todo)
        busy: list[str] = []
        while waiting or busy:
            while waiting and len(busy) < self.parallel:
                name = waiting.pop(0)
                if admit(name):
                    self.attempted.append(name)
                    busy.append(name)
                    self._steps(name)
            self.most = max(self.most, len(busy))
            if busy:
                name = busy.pop(dice.randrange(len(busy)))
                self._tick()
                done(result(name, self.outcomes.get(name, "changed")))

    def _steps(self, name: str) -> None:
        outcome = self.outcomes.get(name, "changed")
        was = None if name in self.fresh else "old"
        current = "new" if outcome == "unchanged" else was
        self.journal.write(
            PlanLine(host=name, release="new", was=current, device_kind="t v73", boot_id="b")
        )
        if outcome in {"changed", OURS}:
            self.journal.write(StepLine(host=name, step="switch"))

    def _tick(self) -> None:
        if self.die_after is not None:
            if self.die_after == 0:
                raise KilledError
            self.die_after -= 1

    def check(self, devices: Sequence[RolloutDevice], done: Done) -> None:
        for one in devices:
            self._tick()
            self.looked.append(one.name)
            done(result(one.name, self.looks.get(one.name, "ok")))

    def back(self, devices: Sequence[RolloutDevice], done: Done) -> None:
        for one in devices:
            self._tick()
            self.returned.append(one.name)
            done(result(one.name, self.backs.get(one.name, "changed")))

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)


@dataclass
class Played:
    """What became of a rollout."""

    executor: FakeExecutor
    ending: Ending
    events: list[Event]
    journal: Journal

    @property
    def attempted(self) -> set[str]:
        return set(self.executor.attempted)


def play(count: int, rules: RolloutSpec, *, path: Path | None = None, **executor: Any) -> Played:
    """A new run over `count` devices."""
    waves = plan_waves(names(count), rules)
    journal = Journal.begin(path, header(waves, rules))
    return go_on(journal, **executor)


def go_on(journal: Journal, **executor: Any) -> Played:
    """Go on with a run."""
    events: list[Event] = []
    one = FakeExecutor(journal, **executor)
    ending = Rollout(one, journal, events.append).run()
    return Played(one, ending, events, journal)
