"""Runs of a deployed release with repeats, stored output and one record each."""

from __future__ import annotations

import codecs
import contextlib
import errno
import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from fleet.engine.deploy.release_builder import Builder
from fleet.engine.run.measuring.gate import cool_down
from fleet.engine.run.measuring.series import Series, warm
from fleet.engine.run.measuring.validity import REBOOTED, marks_of
from fleet.engine.run.start import Placed, Sampling, execute, place
from fleet.engine.session import Session
from fleet.model.deadline import utc_text
from fleet.model.errors import ConnectionLostError
from fleet.model.events import Output, RunDone, StepStarted
from fleet.model.home import kept, open_private, private_folder, write_private
from fleet.model.masking import StreamMasker, masked
from fleet.model.plain import to_plain
from fleet.model.plan import DevicePlan
from fleet.model.playbook import RunSpec
from fleet.model.record import Record
from fleet.model.version import VERSION
from fleet.ops.looks import conditions_of
from fleet.profiles.runs import RunStore
from fleet.runners.base import Ended, Kit, Outcome, Start

LOG_BYTES = 64 << 20
SAMPLES_FILE = "fleet-looks.txt"  # the output of the device for each sample
LINK_BROKE = "the connection broke"  # the problem of a run whose end is unknown
_LOST_STATUS = 255  # as the ssh client returns


class Tee:
    """The output of a run: stored in a file and sent as text to the listener."""

    def __init__(self, path: Path, session: Session, stream: str) -> None:
        self._path = path
        with kept(path):
            self._file = open_private(path)
        self._session = session
        self._stream = stream
        self._masked = StreamMasker()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def close(self) -> None:
        """Send the rest of the output and close the file."""
        try:
            self._pass(self._masked.end())
        finally:
            with kept(self._path):
                self._file.close()

    def take(self, chunk: bytes) -> None:
        """Store and send a chunk.

        The file ends at LOG_BYTES, so that a runner in a loop cannot fill the disk.
        """
        self._pass(self._masked.take(chunk))

    def _pass(self, chunk: bytes) -> None:
        with kept(self._path):
            self._file.write(chunk[: max(0, LOG_BYTES - self._file.tell())])
        text = self._decoder.decode(chunk)
        if text:
            self._session.emit(Output(self._session.host.name, self._stream, text))


@dataclass(frozen=True)
class RunJob:
    """The values that all runs of one device share. `word` is the name shown while they run."""

    session: Session
    builder: Builder
    plan: DevicePlan
    run: RunSpec
    store: RunStore
    run_id: str
    identity: str
    tags: tuple[str, ...] = ()
    word: str = ""


@dataclass(frozen=True)
class Turn:
    """A single run of a job. Its `marks` are known before the run begins."""

    repeat: int
    warmup: bool
    word: str
    marks: tuple[str, ...] = ()


def run_device(job: RunJob, records: list[Record]) -> None:
    """Run the warm-ups, then the repeats, and append their records to `records`.

    A failed run is a record with its problem and does not end the work. If an error ends the work,
    the earlier records are in `records`.
    """
    kit = kit_of(job)
    start = job.builder.runner.start(kit)
    while not warm(job.run, records):
        number = len(records)
        turn = Turn(number, warmup=True, word=f"warm-up {number + 1}")
        _once(job, kit, start, turn, records)
    series, number = Series(job.run), 0
    while series.wants(records):
        cool = job.run.cool if series.cools else None
        last = records[-1].conditions.after if records else None
        marks = cool_down(job.session, cool, last) if cool else ()
        series.begin()
        _once(job, kit, start, Turn(number, False, series.word(number), marks), records)
        number += 1
    host = job.session.host.name
    if series.warning:
        job.session.warn(series.warning)
    if series.outcome:
        job.session.emit(StepStarted(host, "until", series.outcome))


def kit_of(job: RunJob) -> Kit:
    """Return the kit that the runner works with on this device."""
    names = [item.name for item in job.plan.manifest.files]
    tool = any(name.startswith("bin/") or name.endswith(".exe") for name in names)
    return job.builder.kit(job.run, has_tool=tool, target=job.plan.target)


def _once(job: RunJob, kit: Kit, start: Start, turn: Turn, records: list[Record]) -> None:
    session, host = job.session, job.session.host.name
    session.emit(StepStarted(host, "run", job.word or turn.word))
    work = f"{job.run_id}-{'w' if turn.warmup else 'r'}{turn.repeat}"
    placed = place(start, job.plan.manifest, job.plan.facts.base_dir, work)
    made = Recording(job, job.store.folder(job.run_id, host, turn.repeat, warmup=turn.warmup))
    sampling = Sampling(job.run.sample) if job.run.sample and job.plan.facts.posix else None
    boot, lost = session.boot, None
    with made.logs() as (out, err):
        try:
            ended = execute(session, placed, out.take, err.take, sampling)
        except ConnectionLostError as error:
            session.check()  # ended by the user: no record
            ended, lost = Ended(_LOST_STATUS, b""), error
    seconds = made.seconds
    if lost is None:
        outcome = job.builder.runner.read(start, kit, ended)
    else:
        outcome = Outcome(problems=(why_lost(session, lost, boot),))
    if sampling and sampling.output:
        with kept(made.folder / SAMPLES_FILE):
            write_private(made.folder / SAMPLES_FILE, masked(sampling.output))
    conditions = conditions_of(sampling.output if sampling else "", job.run.sample)
    record = made.record(placed, turn, outcome, ended.status)
    problems = (*record.problems, *([REBOOTED] if conditions.rebooted else ()))
    record = replace(record, seconds=seconds, problems=problems, conditions=conditions)
    metric = job.run.until.metric if job.run.until else ""
    marks = (*turn.marks, *placed.start.marks, *outcome.marks)
    marks += marks_of(record, records, metric)
    record = job.store.save(made.folder, replace(record, marks=marks))
    records.append(record)
    session.emit(RunDone(host, to_plain(record)))
    if lost is not None:
        raise lost


def why_lost(session: Session, error: ConnectionLostError, boot: str | None) -> str:
    """Return why the connection broke, rebooted or broken, as far as a new connection can tell."""
    session.tell_apart(error)
    return REBOOTED if session.boot != boot else LINK_BROKE


class Recording:
    """A record in the making: its folder, its logs and its start time."""

    def __init__(self, job: RunJob, folder: Path) -> None:
        self.job, self.folder = job, folder
        self._began, self._clock = utc_text(), time.monotonic()

    @property
    def seconds(self) -> float:
        """The seconds since the start, to the millisecond."""
        return round(time.monotonic() - self._clock, 3)

    @contextlib.contextmanager
    def logs(self, prefix: str = "") -> Iterator[tuple[Tee, Tee]]:
        """Yield the files for standard output and standard error of a program."""
        session = self.job.session
        with (
            contextlib.closing(Tee(self.folder / f"{prefix}stdout.log", session, "stdout")) as out,
            contextlib.closing(Tee(self.folder / f"{prefix}stderr.log", session, "stderr")) as err,
        ):
            yield out, err

    def record(self, placed: Placed, turn: Turn, outcome: Outcome, status: int) -> Record:
        """Keep the raw files of a run, and return its record without conditions and marks."""
        job, manifest = self.job, self.job.plan.manifest
        lost = keep_files(self.folder, outcome.raw)
        return Record(
            run_id=job.run_id,
            host=job.session.host.name,
            name=manifest.name,
            release=manifest.id,
            runner=job.builder.runner.name,
            repeat=turn.repeat,
            warmup=turn.warmup,
            started=self._began,
            seconds=self.seconds,
            status=status,
            metrics=outcome.metrics,
            finish=outcome.finish,
            problems=(*outcome.problems, *lost),
            emulated=job.plan.facts.emulated,
            argv=placed.argv,
            env=placed.env,
            prompt_sha256=hashlib.sha256(placed.start.prompt).hexdigest(),
            files={item.name: item.sha256 for item in manifest.files},
            origin=manifest.origin,
            facts=to_plain(job.plan.facts),
            identity=job.identity,
            artifacts={path.name: str(path) for path in sorted(self.folder.iterdir())},
            text=outcome.text,
            fleet=VERSION,
            ops=outcome.ops,
            tags=job.tags,
        )


def keep_files(folder: Path, raw: Mapping[str, bytes]) -> tuple[str, ...]:
    """Store collected files in the folder, and return for each lost file why it could not be
    stored.

    The device chose the names. No file of fleet is overwritten, and an impossible name stops
    nothing.
    """
    lost = []
    for name, content in raw.items():
        target = folder / name
        try:
            if target.parts[len(folder.parts)].startswith("record.json"):
                raise FileExistsError(errno.EEXIST, "fleet uses this name for a file of its own")
            private_folder(target.parent)
            with open_private(target, "xb") as stream:
                stream.write(content)
        except OSError as error:
            lost.append(f"fleet could not keep the file {name[:80]}: {error.strerror}")
    return tuple(lost)
