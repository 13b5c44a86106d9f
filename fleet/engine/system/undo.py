"""The undo log: the steps on a device's system, written before each step begins.

There is one file for each run and device. It has a JSON line for each step before it begins and one
after it ended. `fleet undo RUN` undoes the steps in reverse order. If the workstation is killed,
the file shows how far it came.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from msgspec import Struct, field, structs

from fleet.engine.lease.lease import Lease
from fleet.engine.pool import DeviceResult, PoolOptions, on_every_device
from fleet.engine.rollout.claim import newest
from fleet.engine.session import Session
from fleet.engine.states import gathered
from fleet.engine.system.become import Become
from fleet.engine.system.provision import ask_rights, run_as_root
from fleet.facts.gather import check_identity
from fleet.model.command import Command
from fleet.model.errors import DeviceError, InputError, reason
from fleet.model.events import Listener, StepStarted
from fleet.model.home import kept, open_private, private_folder
from fleet.model.inventory import Host
from fleet.model.plain import read_plain, to_plain
from fleet.model.plan import Action
from fleet.ops.system.access import ACL
from fleet.ops.system.step import SystemStep
from fleet.profiles.runs import RunStore

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
    log.path.replace(log.path.with_suffix(".undone"))
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


def undo_root(runs: RunStore) -> Path:
    """Return the folder of the logs, next to the records of runs."""
    return runs.root.with_name("undo")


def changed_by(run_id: str, hosts: Sequence[Host]) -> tuple[str, dict[str, list[str]]]:
    """Return the id of the run, and device → steps that `undo` would undo, in order.

    Raises InputError for an unknown run.
    """
    store = RunStore()
    root = undo_root(store)
    run_id = _known_run(run_id, store)
    steps = {}
    for host in hosts:
        if back := backwards(UndoLog(root, run_id, host.name).read()):
            steps[host.name] = [step.describe for step in back]
    return run_id, steps


def _known_run(run_id: str, runs: RunStore) -> str:
    """Return the id of a run that changed a system (`last`: the newest). Raises InputError."""
    root = undo_root(runs)
    known = sorted(folder.name for folder in root.iterdir()) if root.is_dir() else []
    if run_id == "last" and known:
        run_id = newest(runs.root, known)
    if run_id not in known:
        raise InputError(
            f"no run '{run_id}' changed the system of a device, so there is nothing to undo",
            hint=f"use one of these runs: {', '.join(known[-5:])}"
            if known
            else (
                "check that FLEET_HOME is the same as for the deploy: fleet keeps its log of "
                "system changes there"
            ),
        )
    return run_id


def undo(
    hosts: Sequence[Host],
    run_id: str,
    listener: Listener,
    *,
    parallel: int,
    runs: RunStore | None = None,
) -> list[DeviceResult[None]]:
    """Undo the steps of a run in reverse order (`last`: the newest run). Releases do not change.

    Raises InputError when there is no such run; a device without a log is left unchanged.
    """
    store = runs or RunStore()
    root = undo_root(store)
    run_id = _known_run(run_id, store)

    def work(session: Session, result: DeviceResult[None]) -> None:
        log = UndoLog(root, run_id, session.host.name)
        if not log.path.is_file():
            result.outcome, result.text = "unchanged", "the run changed nothing on this device"
            return
        if session.host.identity is not None:
            check_identity(session.host, gathered(session))
        become, _ = ask_rights(session)
        with Lease(session, f"undo {run_id}", run_id):
            remarks = take_back(session, log, become)
        for text in remarks:
            session.warn(f"fleet could not undo this step: {text}")
        acls = "; ".join(text for text in remarks if ACL in text)
        result.outcome, result.text = "changed", f"the system is as before run {run_id}"
        result.text += acls and f", but {acls}"

    return on_every_device(hosts, work, listener, PoolOptions(parallel=parallel))
