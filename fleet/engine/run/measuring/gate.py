"""The gate `cool`: a run waits until the device is cool enough."""

from __future__ import annotations

import time

from fleet.engine.run.measuring.heat import Heat, hottest, matching
from fleet.engine.session import Session
from fleet.model.conditions import Sample
from fleet.model.deadline import Deadline
from fleet.model.errors import (
    ConnectionLostError,
    DeadlineError,
    DeviceError,
    FleetError,
    UnreachableError,
)
from fleet.model.events import Cooling, StepStarted
from fleet.model.gates import CoolSpec
from fleet.ops.looks import look_command, zones_of

POLL_SECONDS = 2.0  # between two samples: a heat sink cools by less than 1 °C in that time
TRIES = 6  # of one sample over a link that breaks
WAIT_SECONDS = 0.5  # before the second try; doubled for each further one
_BROKEN = (ConnectionLostError, DeadlineError, UnreachableError)
_STEP = "cool"
_SHOWN_ZONES = 60


def cool_down(session: Session, spec: CoolSpec, last: Sample | None = None) -> tuple[str, ...]:
    """Wait until the device is cool, and return the marks of the run that follows.

    `last` is the sample at the end of the previous run; if it was cool, the device is not asked.
    The lease is held during the wait, because work of others would heat the device again. Raises
    DeviceError if the device stays too warm or shows no temperature, unless `otherwise` is `go on`.
    Raises DeviceError for a zone that does not exist.
    """
    known = hottest(last.zones, spec.zone) if last else None
    if known is not None and known.celsius < spec.below:
        return ()
    if session.lease is not None:
        session.lease.take()
    deadline = Deadline(spec.timeout)
    announced = False
    while True:
        heat = _heat(session, spec)
        if heat is None:
            return _given_up(session, spec, _nothing(spec), "fleet could not read a temperature")
        if heat.celsius < spec.below:
            return ()
        text = f"{heat.zone} is {heat.celsius:.1f} °C"
        if deadline.expired:
            text += f", not below {spec.below:g} °C"
            return _given_up(session, spec, f"{text} after {_clock(spec.timeout)}", text)
        if not announced:
            announced, limit = True, f"at most {_clock(spec.timeout)}"
            waiting = f"fleet waits until it is below {spec.below:g} °C, {limit}"
            session.emit(StepStarted(session.host.name, _STEP, f"{text}, {waiting}"))
        session.emit(
            Cooling(session.host.name, heat.zone, heat.celsius, spec.below, deadline.remaining)
        )
        session.check()
        time.sleep(min(POLL_SECONDS, deadline.remaining))


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d} min"


def _nothing(spec: CoolSpec) -> str:
    if spec.zone == "auto":
        return (
            "fleet cannot tell whether the device is cool: the login user cannot read any "
            "thermal zone"
        )
    return (
        f"fleet cannot tell whether the device is cool: the thermal zone {spec.zone} reports no "
        "temperature"
    )


def _given_up(session: Session, spec: CoolSpec, problem: str, mark: str) -> tuple[str, ...]:
    """Return the marks of a run that begins without cooling down, or raise DeviceError."""
    if spec.otherwise == "go on":
        session.warn(
            f"{problem}; fleet runs the model anyway, because the playbook says `otherwise: go on`"
        )
        return (f"started without cooling down: {mark}",)
    raise DeviceError(
        problem,
        step=_STEP,
        hint="set a higher temperature or a longer timeout under `run: cool:` in the playbook, "
        "or set `otherwise: go on` to run anyway; see docs/measuring.md",
    )


def _heat(session: Session, spec: CoolSpec) -> Heat | None:
    zones = zones_of(_sample(session))
    if zones and not matching(zones, spec.zone):
        listed = ", ".join(list(zones)[:_SHOWN_ZONES])
        raise DeviceError(
            f"the device has no thermal zone '{spec.zone}'; it has: {listed}",
            step=_STEP,
            hint="write one of these names, a glob like 'cpu*', or `zone: auto`",
        )
    return hottest({name: heat for name, heat in zones.items() if heat is not None}, spec.zone)


def _sample(session: Session) -> str:
    """Return one sample as text, and reconnect after a broken link.

    Raises the error of the last try.
    """
    for attempt in range(TRIES):
        try:
            if attempt:
                session.reopen()
            return session.ask(look_command(), _STEP).text
        except _BROKEN as error:
            if attempt + 1 == TRIES:
                raise
            _wait(session, error, WAIT_SECONDS * 2**attempt)
    raise AssertionError("the last attempt returns or raises")


def _wait(session: Session, error: FleetError, seconds: float) -> None:
    session.check()
    session.warn(f"{error.message}; fleet tries again in {seconds:g} s")
    time.sleep(seconds)
