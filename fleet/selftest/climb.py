"""The climb: every rung in turn, with its time. A fallen rung stops only those that need it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet.doctor.checks import every
from fleet.doctor.examine import Round, look
from fleet.doctor.parts import raw_parts
from fleet.engine.lease.lease import Lease
from fleet.engine.pool import DeviceResult, PoolOptions, on_every_device
from fleet.engine.session import Session
from fleet.model.diagnosis import BAD, UNKNOWN, WARN
from fleet.model.errors import (
    CancelledError,
    DeviceError,
    FleetError,
    LeaseHeldError,
    LeaseLostError,
    RunnerError,
    TransportError,
    reason,
)
from fleet.model.events import Listener, StepStarted
from fleet.model.inventory import Host
from fleet.model.runtime import Runtime
from fleet.profiles.runs import new_run_id
from fleet.runtimes.store import RuntimeStore
from fleet.selftest import judges  # noqa: F401 - the judges register themselves
from fleet.selftest.bench import BULK_BYTES, Bench, workplace
from fleet.selftest.ladder import (
    FELL,
    HOLDS,
    JUDGES,
    UNDECIDED,
    WORKSTATION,
    Climbed,
    Rung,
    RungResult,
    RungVerdict,
    Undecided,
    allowed,
    kind_of,
    reason_text,
    rungs,
)

_GO_ON = {"no-python", "unseen"}  # reasons with which the SDK's own programs still climb
_ENDS_ALL = (LeaseHeldError, LeaseLostError, CancelledError)


@dataclass(frozen=True)
class SelftestOptions:
    """Options: `runtime` of the store (None leaves out rungs that need one), `bulk` bytes
    to send.
    """

    runtime: Runtime | None = None
    bulk: int = BULK_BYTES
    parallel: int = 4
    accept_new: bool = False


class Selftest:
    """The ladder on every device. `climbed` contains each device that was reached."""

    def __init__(
        self,
        hosts: Sequence[Host],
        listener: Listener,
        store: RuntimeStore,
        options: SelftestOptions,
    ) -> None:
        self._hosts, self._listener, self._store = hosts, listener, store
        self.options = options
        self.climbed: dict[str, Climbed] = {}

    def run(self) -> list[DeviceResult[None]]:
        """Climb on all devices. Return a result for each, `failed` if a rung does not hold."""
        how = PoolOptions[None](parallel=self.options.parallel, accept_new=self.options.accept_new)
        return on_every_device(self._hosts, self._climb, self._listener, how)

    def _climb(self, session: Session, result: DeviceResult[None]) -> None:
        sample = look(session, Round())
        session.boot = sample.facts.boot_id
        runtime, run_id = self.options.runtime, new_run_id()
        climbed = Climbed(session.host.name, sample.facts, runtime.build_id if runtime else "")
        with workplace() as work, Lease(session, "selftest", run_id) as lease:
            _take(lease)
            self.climbed[session.host.name] = climbed
            try:
                climbed.parts = raw_parts(session, sample)
                own = self.options.bulk, Path(work)
                _climb_all(Bench(session, sample, self._store, runtime, run_id, *own), climbed)
            except FleetError as error:
                climbed.ended = error.message
                raise
        fell = [step.rung.id for step in climbed.steps if step.status == FELL]
        result.outcome = "failed" if fell else "ok"
        result.text = f"fell: {', '.join(fell)}" if fell else "no test failed"


def _take(lease: Lease) -> None:
    """Take the lease first, so that no rung runs on a device that somebody else uses.

    If no lease can be written, the rungs that write report it.
    """
    try:
        lease.take()
    except (*_ENDS_ALL, TransportError):
        raise
    except FleetError:
        return


def _climb_all(bench: Bench, climbed: Climbed) -> None:
    session = bench.session
    try:
        for rung in rungs():
            session.emit(StepStarted(session.host.name, rung.id, rung.asks))
            climbed.steps.append(climb(bench, rung, climbed.steps))
    finally:
        _clean(bench)


def _clean(bench: Bench) -> None:
    """Remove the folder, unless the disk is not writable and so nothing was sent."""
    if bench.facts.disk.writable:
        bench.clean()


def climb(bench: Bench, rung: Rung, before: Sequence[RungResult]) -> RungResult:
    """Climb one rung. Only errors that end all work are raised."""
    started = time.monotonic()
    result = _outcome(bench, rung, before)
    result.seconds = time.monotonic() - started
    if result.status == UNDECIDED:
        result.listed = result.key in allowed(rung.id, kind_of(bench.facts))
    return result


def _outcome(bench: Bench, rung: Rung, before: Sequence[RungResult]) -> RungResult:
    for step in before:
        if step.rung.id in rung.needs and step.status != HOLDS and step.key not in _GO_ON:
            if step.status == FELL:
                return _undecided(rung, Undecided("fell", step.rung.id))
            return RungResult(rung, UNDECIDED, "", "", reason=step.reason, key=step.key)
    if rung.never:
        return _undecided(rung, Undecided(rung.never, rung.what))
    try:
        return _judged(bench, rung)
    except Undecided as why:
        return _undecided(rung, why)
    except OSError as error:  # the folder of `workplace`
        return _undecided(rung, Undecided(WORKSTATION, reason(error)))


def _judged(bench: Bench, rung: Rung) -> RungResult:
    """Decide one rung. Raises Undecided, also for errors that are not the device's."""
    try:
        verdict = _checked(bench, rung) if rung.checks else JUDGES[rung.id](bench)
    except _ENDS_ALL:
        raise
    except TransportError as error:
        bench.session.reopen()
        return RungResult(rung, FELL, "the device answers in time", error.message)
    except (DeviceError, RunnerError) as error:
        return RungResult(rung, FELL, "no error", error.message)
    except FleetError as error:
        raise Undecided(WORKSTATION, error.message, cure=error.hint) from error
    status = HOLDS if verdict.holds else FELL
    return RungResult(rung, status, verdict.expected, verdict.observed, verdict.words)


def _undecided(rung: Rung, why: Undecided) -> RungResult:
    text = reason_text(why.reason, why.what)
    return RungResult(rung, UNDECIDED, "", "", why.words, text, key=why.reason, cure=why.cure)


def _checked(bench: Bench, rung: Rung) -> RungVerdict:
    """Return the doctor's verdict on a rung. Raises Undecided if nothing is known."""
    checks = [check for check in every(bench.sample, rung.checks) if check.id in rung.checks]
    counts = {BAD, WARN} if rung.strict else {BAD}
    wrong = [check for check in checks if check.status in counts]
    words = "\n".join(f"# {c.id} {c.status}: {c.text}\n$ {c.command}\n{c.output}" for c in checks)
    if all(check.status == UNKNOWN for check in checks):
        raise Undecided("unseen", words=words)
    odd = wrong or [check for check in checks if check.status in {WARN, UNKNOWN}]
    observed = "; ".join(check.text for check in odd) or "well"
    return RungVerdict(not wrong, "nothing wrong", observed, words)
