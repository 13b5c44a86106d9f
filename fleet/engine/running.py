"""Runs of a deployed release: repeats, kept output, one record each."""

from __future__ import annotations

import codecs
import errno
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from fleet import __version__
from fleet.engine.records import RunStore
from fleet.engine.session import Session
from fleet.engine.starting import execute, place
from fleet.engine.workbench import Workbench
from fleet.model.events import Output, RunDone, StepStarted
from fleet.model.plan import DevicePlan
from fleet.model.playbook import RunSpec
from fleet.model.record import Record
from fleet.runners.base import Kit, Start

LOG_BYTES = 64 << 20


class _Tee:
    """Output of a run: whole to a file, and as text to the listener."""

    def __init__(self, path: Path, session: Session, stream: str) -> None:
        self._file = path.open("wb")
        self._session = session
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def take(self, chunk: bytes) -> None:
        """One chunk. The file ends at LOG_BYTES: a runner in a loop must not fill the disk."""
        self._file.write(chunk[: max(0, LOG_BYTES - self._file.tell())])
        text = self._decoder.decode(chunk)
        if text:
            self._session.emit(Output(self._session.host.name, self._stream, text))


@dataclass(frozen=True)
class Job:
    """Everything that the runs of one device share."""

    session: Session
    bench: Workbench
    plan: DevicePlan
    run: RunSpec
    store: RunStore
    run_id: str


def run_device(job: Job) -> list[Record]:
    """Warm-ups, then repeats. A failed run is a record with its problem, and ends nothing."""
    names = [item.name for item in job.plan.manifest.files]
    tool = any(name.startswith("bin/") or name.endswith(".exe") for name in names)
    kit = job.bench.kit(job.run, has_tool=tool, target=job.plan.target)
    start = job.bench.runner.start(kit)
    turns = [(True, n) for n in range(job.run.warmups)]
    turns += [(False, n) for n in range(job.run.repeats)]
    return [_once(job, kit, start, warmup=warmup, repeat=repeat) for warmup, repeat in turns]


def _once(job: Job, kit: Kit, start: Start, *, warmup: bool, repeat: int) -> Record:
    session, host = job.session, job.session.host.name
    word = f"warm-up {repeat + 1}" if warmup else f"run {repeat + 1} of {job.run.repeats}"
    session.emit(StepStarted(host, "run", word))
    work = f"{job.run_id}-{'w' if warmup else 'r'}{repeat}"
    placed = place(start, job.plan.manifest, job.plan.facts.base_dir, work)
    folder = job.store.folder(job.run_id, host, repeat, warmup=warmup)
    began, clock = time.gmtime(), time.monotonic()
    with (
        _Tee(folder / "stdout.log", session, "stdout") as out,
        _Tee(folder / "stderr.log", session, "stderr") as err,
    ):
        ended = execute(session, placed, out.take, err.take)
    seconds = time.monotonic() - clock
    outcome = job.bench.runner.read(start, kit, ended)
    lost = _keep(folder, outcome.raw)
    manifest = job.plan.manifest
    record = Record(
        run_id=job.run_id,
        host=host,
        name=manifest.name,
        release=manifest.id,
        runner=job.bench.runner.name,
        repeat=repeat,
        warmup=warmup,
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", began),
        seconds=round(seconds, 3),
        status=ended.status,
        metrics=outcome.metrics,
        finish=outcome.finish,
        problems=(*outcome.problems, *lost),
        emulated=job.plan.facts.emulated,
        argv=placed.argv,
        env=placed.env,
        prompt_sha256=hashlib.sha256(start.prompt).hexdigest(),
        files={item.name: item.sha256 for item in manifest.files},
        origin=manifest.origin,
        facts=job.plan.facts.as_dict(),
        identity=session.identity,
        text=outcome.text,
        fleet=__version__,
        artifacts={path.name: str(path) for path in sorted(folder.iterdir())},
    )
    job.store.save(folder, record)
    session.emit(RunDone(host, record.as_dict()))
    return record


def _keep(folder: Path, raw: Mapping[str, bytes]) -> tuple[str, ...]:
    """Put what was collected beside our own files; why that did not go, for each that is lost.

    The device chose the names: none of ours is written over, and an impossible one ends nothing.
    """
    lost = []
    for name, content in raw.items():
        target = folder / name
        try:
            if target.parts[len(folder.parts)].startswith("record.json"):
                raise FileExistsError(errno.EEXIST, "the name of our own record")
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as stream:
                stream.write(content)
        except OSError as error:
            lost.append(f"{name[:80]} was not kept: {error.strerror}")
    return tuple(lost)
