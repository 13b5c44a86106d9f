"""The undo log: the steps on a device's system, written before each step begins.

There is one file for each run and device. It has a JSON line for each step before it begins and one
after it ended. `fleet undo RUN` undoes the steps in reverse order. If the workstation is killed,
the file shows how far it came.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from msgspec import Struct, field, structs

from fleet.engine.session import Session
from fleet.engine.system.become import Become
from fleet.engine.system.provision import run_as_root
from fleet.model.command import Command
from fleet.model.errors import DeviceError, InputError, reason
from fleet.model.events import StepStarted
from fleet.model.home import kept, open_private, private_folder
from fleet.model.plain import read_plain, to_plain
from fleet.model.plan import Action
from fleet.ops.system.access import ACL
from fleet.ops.system.step import SystemStep

SCHEMA = 1
LOOK_SECONDS = 30.0
_Words = tuple[tuple[str, ...], ...]
ACL_STAYS = f"keeps an {ACL} of a udev rule until you reboot or run setfacl -b"


class Done(Struct, frozen=True, kw_only=True):
    """A step that was begun, and its undo. `undone` is set if an undo failed at another step."""

    describe: str = field(name="begin")
    undo: _Words
    staged: Mapping[str, bytes]
    needs_root: bool
    refreshes: bool
    seconds: float
    no_undo: str
    ended: bool = False
    undone: bool = False
    PLAIN: ClassVar[str] = "schema=SCHEMA * -ended -undone"
    SCHEMA: ClassVar[int] = SCHEMA

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands that undo the step."""
        return tuple(map(Command, self.undo))


class UndoLog:
    """The log file `<root>/<run id>/<host>.jsonl`."""

    def __init__(self, root: Path, run_id: str, host: str) -> None:
        self.path = root / run_id / f"{host}.jsonl"
        self.command = f"fleet undo {run_id} --limit {host}"

    def begin(self, step: Action) -> None:
        """Record how `step` is undone, before it begins. The line is synced to the disk."""
        system = step if isinstance(step, SystemStep) else None
        self._append(
            Done(
                describe=step.describe(),
                undo=_words(step.undo()),
                staged=system.undo_staged() if system else {},
                needs_root=step.needs_root,
                refreshes=bool(system and system.refreshes),
                seconds=system.seconds if system else 60.0,
                no_undo=step.no_undo,
            )
        )

    def end(self, undo: tuple[Command, ...] | None = None) -> None:
        """Record that the last step succeeded; `undo` is now known better."""
        known = {} if undo is None else {"undo": _words(undo)}
        self._append({"end": True, **known})

    def undone(self, step: int) -> None:
        """Record that the step with this number was undone."""
        self._append({"undone": step})

    def _append(self, line: object) -> None:
        with kept(self.path):
            private_folder(self.path.parent)
            with open_private(self.path, "ab") as stream:
                stream.write(json.dumps(to_plain(line)).encode() + b"\n")
                stream.flush()
                os.fsync(stream.fileno())

    def read(self) -> list[Done]:
        """Return the steps in the order in which they began. Raises InputError for a
        damaged file.
        """
        steps: list[Done] = []
        for number, line in enumerate(_lines(self.path), 1):
            try:
                steps = _take(steps, json.loads(line))
            except (ValueError, TypeError, IndexError, RecursionError, InputError) as error:
                raise InputError(
                    f"line {number} of {self.path}, the log of changed system files, is damaged: "
                    f"{reason(error)}",
                    hint=f"remove that line: sed -i {number}d {shlex.quote(str(self.path))}",
                ) from error
        return steps

    def taken_back(self) -> None:
        """Rename the file to mark it as undone."""
        self.path.replace(self.path.with_suffix(".undone"))


def _lines(path: Path) -> Iterator[str]:
    if path.is_file():
        yield from path.read_text("utf-8").splitlines()


def _take(steps: list[Done], line: dict[str, Any]) -> list[Done]:
    if "undone" in line:
        step = int(line["undone"])
        return [structs.replace(e, undone=e.undone or n == step) for n, e in enumerate(steps)]
    if "end" in line:
        last = structs.replace(steps[-1], ended=True)
        if "undo" in line:
            last = structs.replace(last, undo=msgspec.convert(line["undo"], _Words))
        return [*steps[:-1], last]
    return [*steps, read_plain(Done, line, "line", "")]


def _words(commands: Iterable[Command]) -> _Words:
    return tuple(command.argv for command in commands)


def backwards(done: list[Done]) -> list[Done]:
    """Return the order of the undo: last first; commands that make others reload files come
    last.
    """
    back = [step for step in reversed(done) if step.commands and not step.undone]
    return [step for step in back if not step.refreshes] + [step for step in back if step.refreshes]


def take_back(session: Session, log: UndoLog, become: Become) -> list[str]:
    """Undo the steps of the log; return remarks on steps that cannot be undone.

    A failing step does not prevent the others. Raises DeviceError that names the failed and the
    undone steps; the log then stays, and the next undo continues with the rest.
    """
    done = log.read()
    failed: list[str] = []
    undone: list[str] = []
    for step in backwards(done):
        session.emit(StepStarted(session.host.name, "undo", step.describe))
        try:
            _play(session, step, become)
        except DeviceError as error:
            if type(error) is not DeviceError:  # no root, no lease: the others would fail too
                raise
            failed.append(f"{step.describe} ({error.message})")
        else:
            undone.append(step.describe)
            log.undone(next(n for n, each in enumerate(done) if each is step))
    if failed:
        raise DeviceError(
            f"fleet could not undo: {'; '.join(failed)}; undone: {'; '.join(undone) or 'nothing'}",
            step="undo",
            hint=f"{log.command} (undoes what is left)",
        )
    log.taken_back()
    remarks = [f"{step.describe}: {step.no_undo}" for step in done if step.no_undo]
    return remarks + [f"{path}: {ACL_STAYS}" for path in _with_acl(session, done)]


def _play(session: Session, step: Done, become: Become) -> None:
    if step.needs_root:
        run_as_root(session, become, step.commands, step.staged, step.seconds)
        return
    for command in step.commands:
        session.ask(command, "undo", seconds=step.seconds, mutates=True)


def _with_acl(session: Session, done: list[Done]) -> list[str]:
    """Return the device nodes with restored modes that still have an access control list.

    The rule of FastRPC's packages gives the heap one, and the tool for it may be removed with them.
    Nodes that a step names as kept are left out.
    """
    modes = [command.argv for step in done for command in step.commands]
    nodes = {argv[-1] for argv in modes if argv[0] == "chmod" and argv[-1].startswith("/dev/")}
    if not nodes:
        return []
    result = session.run(Command(("ls", "-ld", "--", *sorted(nodes))), "undo", seconds=LOOK_SECONDS)
    lines = [line.split() for line in result.text.splitlines() if line.strip()]
    listed = [words[-1] for words in lines if words[0].endswith("+")]  # POSIX ls, "STDOUT"
    return [path for path in listed if not any(path in step.no_undo for step in done)]
