"""The way back: what was done to the system of a device, written down before it is done.

One file a run and device, a JSON line for each step before it begins and one after it
ended. `fleet undo RUN` plays the lines backwards; a workstation that was killed leaves a
file that says how far it came.
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
    """A step that was begun, and how it is taken back. `undone`: by an undo that failed at
    another step.
    """

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
        """The commands that take it back."""
        return tuple(map(Command, self.undo))


class UndoLog:
    """`<root>/<run id>/<host>.jsonl`."""

    def __init__(self, root: Path, run_id: str, host: str) -> None:
        self.path = root / run_id / f"{host}.jsonl"
        self.command = f"fleet undo {run_id} --limit {host}"

    def begin(self, step: Action) -> None:
        """Write down how `step` is taken back, before it begins; on disk when this returns."""
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
        """The step that was begun last has ended well; `undo` is known better now."""
        known = {} if undo is None else {"undo": _words(undo)}
        self._append({"end": True, **known})

    def undone(self, step: int) -> None:
        """The step of this number is taken back; another one is not."""
        self._append({"undone": step})

    def _append(self, line: object) -> None:
        with kept(self.path):
            private_folder(self.path.parent)
            with open_private(self.path, "ab") as stream:
                stream.write(json.dumps(to_plain(line)).encode() + b"\n")
                stream.flush()
                os.fsync(stream.fileno())

    def read(self) -> list[Done]:
        """The steps in the order in which they were begun. InputError for a damaged file."""
        found: list[Done] = []
        for number, line in enumerate(_lines(self.path), 1):
            try:
                found = _take(found, json.loads(line))
            except (ValueError, TypeError, IndexError, RecursionError, InputError) as error:
                raise InputError(
                    f"line {number} of {self.path}, the log of changed system files, is damaged: "
                    f"{reason(error)}",
                    hint=f"remove that line: sed -i {number}d {shlex.quote(str(self.path))}",
                ) from error
        return found

    def taken_back(self) -> None:
        """Keep the file, under a name that says that it was played."""
        self.path.replace(self.path.with_suffix(".undone"))


def _lines(path: Path) -> Iterator[str]:
    if path.is_file():
        yield from path.read_text("utf-8").splitlines()


def _take(found: list[Done], line: dict[str, Any]) -> list[Done]:
    if "undone" in line:
        step = int(line["undone"])
        return [structs.replace(e, undone=e.undone or n == step) for n, e in enumerate(found)]
    if "end" in line:
        last = structs.replace(found[-1], ended=True)
        if "undo" in line:
            last = structs.replace(last, undo=msgspec.convert(line["undo"], _Words))
        return [*found[:-1], last]
    return [*found, read_plain(Done, line, "line", "")]


def _words(commands: Iterable[Command]) -> _Words:
    return tuple(command.argv for command in commands)


def backwards(done: list[Done]) -> list[Done]:
    """The order of the undo: last first, and what only makes others read files at the end."""
    back = [step for step in reversed(done) if step.commands and not step.undone]
    return [step for step in back if not step.refreshes] + [step for step in back if step.refreshes]


def take_back(session: Session, log: UndoLog, become: Become) -> list[str]:
    """Undo what the log holds; gives remarks on steps that have no way back.

    A step that fails keeps none of the others. Raises DeviceError that names both; then the log
    stays, and the next undo plays what is left.
    """
    done = log.read()
    failed: list[str] = []
    undone: list[str] = []
    for step in backwards(done):
        session.emit(StepStarted(session.host.name, "undo", step.describe))
        try:
            _play(session, step, become)
        except DeviceError as error:
            if type(error) is not DeviceError:  # no root, no lease: the others would fail as well
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
    """Device nodes whose mode was given back, and that have an access control list: the rule of
    FastRPC's packages gives the heap one, and its tool may be gone with them. Without those
    that a step names as kept.
    """
    modes = [command.argv for step in done for command in step.commands]
    nodes = {argv[-1] for argv in modes if argv[0] == "chmod" and argv[-1].startswith("/dev/")}
    if not nodes:
        return []
    seen = session.run(Command(("ls", "-ld", "--", *sorted(nodes))), "undo", seconds=LOOK_SECONDS)
    lines = [line.split() for line in seen.text.splitlines() if line.strip()]
    found = [words[-1] for words in lines if words[0].endswith("+")]  # POSIX ls, "STDOUT"
    return [path for path in found if not any(path in step.no_undo for step in done)]
