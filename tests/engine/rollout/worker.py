"""A workstation that dies: deploys, or goes on with the newest run, and SIGKILLs itself.

argv: playbook, inventory, home, and where: `LINE`, `LINE:HOST`, `LINE:HOST:STEP` right after that
line of the journal is on disk; `Progress:BYTES` once that many bytes of a blob are sent; `-` never.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from fleet.config.inventory import load_inventory
from fleet.config.playbook import load_playbook
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.options import DeployOptions
from fleet.engine.rollout.inputs import inputs_of
from fleet.engine.rollout.journal import Journal
from fleet.engine.rollout.lines import JournalLine, ResumeLine
from fleet.engine.rollout.resume import journal_path, known_runs, reopen
from fleet.model.events import Event, Progress
from fleet.profiles.runs import RunStore
from fleet.runtimes.store import RuntimeStore


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def mortal(where: str) -> None:
    """From now on each line of a journal may be the last thing that this process does."""
    real = Journal.write

    def write(self: Journal, line: JournalLine) -> None:
        real(self, line)
        words = [
            str(type(line).__struct_config__.tag),
            *(getattr(line, name, "") for name in ("host", "step")),
        ]
        if where.split(":") == words[: where.count(":") + 1]:
            die()

    Journal.write = write  # type: ignore[method-assign]


def main(playbook: str, inventory: str, home: str, where: str) -> None:
    name, _, limit = where.partition(":")

    def hear(event: Event) -> None:
        if name == "Progress" and isinstance(event, Progress) and event.done >= int(limit):
            die()

    mortal(where)
    runs, runtimes = RunStore(Path(home) / "runs"), RuntimeStore(Path(home) / "runtimes")
    if list(known_runs(runs)):
        journal = Journal.reopen(journal_path("last", runs))
        operation = reopen(journal, hear, runs=runs, runtimes=runtimes)
        journal.write(ResumeLine(forced=False))
        operation.go_on(journal)
        return
    inputs = inputs_of(Path(playbook), Path(inventory))
    Operation(
        load_playbook(inputs.playbook),
        load_inventory(inputs.inventory).hosts,
        hear,
        options=DeployOptions(run="never", offline=True),
        inputs=inputs,
        resources=Resources(runtimes, runs),
    ).deploy()


if __name__ == "__main__":
    main(*sys.argv[1:])
