"""Where a command is stopped, how, and what comes of it: the rows that tests/faults/test_stopped.py
holds against the code, and docs/promises.md shows.

As a program: a workstation that dies by SIGKILL. argv: playbook, inventory, home, command, step.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from fleet.config.inventory import load_inventory
from fleet.config.playbook import load_playbook
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.deploy.push import Push
from fleet.engine.options import DeployOptions
from fleet.engine.pool import DeviceResult
from fleet.engine.session import Session
from fleet.model.events import Event, StepStarted
from fleet.model.inventory import Host
from fleet.profiles.runs import RunStore
from fleet.runtimes.store import RuntimeStore

LOOK = "look"  # the first questions, before any step


@dataclass(frozen=True)
class Row:
    """`hang`, `killed`: which release is live then. The outcome and exit code of a hang are the
    same everywhere, and so are those of a kill; `again` is the outcome of the next command.
    """

    command: str
    step: str
    hang: str
    killed: str
    again_hang: str
    again_killed: str


class Files(Protocol):
    """What a command is given."""

    @property
    def playbook(self) -> Path: ...

    @property
    def inventory(self) -> Path: ...

    @property
    def home(self) -> Path: ...


EITHER, AGAIN = "old or new", "changed or unchanged"
ROWS = (
    Row("deploy", LOOK, "old", "old", "changed", "changed"),
    Row("deploy", "send", "old", "old", "changed", "changed"),
    Row("deploy", "stage", "old", "old", "changed", "changed"),
    Row("deploy", "health", "old", "old", "changed", "changed"),
    Row("deploy", "switch", "old", "old", "changed", "changed"),
    Row("deploy", "prune", EITHER, EITHER, AGAIN, AGAIN),  # asked with the switch, in one go
    Row("deploy", "run", "new", "new", "unchanged", "unchanged"),
    Row("push", LOOK, "old", "old", "changed", "changed"),
    Row("push", "send", "old", "old", "changed", "changed"),
    Row("push", "stage", "old", "old", "changed", "changed"),
    Row("push", "switch", "old", "old", "changed", "changed"),
    Row("push", "prune", EITHER, EITHER, AGAIN, AGAIN),  # asked with the switch, in one go
    Row("provision", LOOK, "same", "same", "changed", "changed"),
    Row("provision", "system", "same", "same", "changed", "changed"),
    Row("run", LOOK, "same", "same", "ran", "ran"),
    Row("run", "run", "same", "same", "ran", "ran"),
)


def work(
    command: str, playbook: Path, hosts: list[Host], home: Path, hear: Callable[[Event], None]
) -> DeviceResult[Any]:
    """One command on one board, as the command line does it."""
    if command == "push":
        (result,) = Push("app", [playbook.parent / "bundle"], hosts, hear).push()
        return result
    operation = Operation(
        load_playbook(playbook),
        hosts,
        hear,
        options=DeployOptions(offline=True),
        resources=Resources(RuntimeStore(home / "runtimes"), RunStore(home / "runs")),
    )
    doing = {"run": operation.run, "provision": operation.provision}
    (result,) = doing.get(command, operation.deploy)()
    return result


def stopper(step: str, stop: Callable[[], None]) -> Callable[[Event], None]:
    """`stop` when `step` begins; of those on the system when the second one does."""
    begun: list[Event] = []

    def hear(event: Event) -> None:
        if isinstance(event, StepStarted) and event.step == step:
            begun.append(event)
            if len(begun) == (2 if step == "system" else 1):
                stop()

    return hear


def _after(row: Row) -> tuple[str, str, str, str, str]:
    """Return the command of a row and what it says of a hang and of a kill."""
    return row.command, row.hang, row.again_hang, row.killed, row.again_killed


def page() -> str:
    """Return the section of docs/promises.md about stopped commands."""
    head = (
        "## Stopped in the middle\n\n"
        "A link that swallows everything from the start of a step on (*hang*), or a workstation "
        "that is killed there by SIGKILL (*killed*). A hang ends as `unreachable`, exit code 3, "
        "a killed process with exit code 137. The same command then succeeds without waiting for a "
        "lease.\n\n"
        "| command | steps | live after a hang | next command | live after a kill | next command |"
        "\n|---|---|---|---|---|---|"
    )
    rows = [
        f"| {command} | {', '.join(row.step for row in alike)} | {' | '.join(after)} |"
        for (command, *after), alike in groupby(ROWS, _after)
    ]
    tail = (
        "\nTested by `test_stopped.py` of tests/faults and tests/provision. `look` is before the "
        "first step, `system` the second step on the system; the first one is complete and stays."
    )
    return "\n".join([head, *rows, tail]) + "\n"


def main(playbook: str, inventory: str, home: str, command: str, step: str) -> None:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if step == LOOK:
        made = Session.open

        def opened(self: Session) -> None:
            made(self)
            die()

        Session.open = opened  # type: ignore[method-assign]
    hosts = list(load_inventory(Path(inventory)).hosts)
    work(command, Path(playbook), hosts, Path(home), stopper(step, die))


if __name__ == "__main__":
    main(*sys.argv[1:])
