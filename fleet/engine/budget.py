"""The time budget of a board that is booked by the hour: `until:` of the inventory.

After the end nothing starts, a running command is cut off, and fleet removes its files from the
board. A deploy that would not fit is refused before it begins.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from fleet.model.deadline import Deadline
from fleet.model.errors import BudgetError, DeviceError, FleetError
from fleet.model.finding import Finding
from fleet.model.lease import human_seconds
from fleet.ops.lease import end_command

if TYPE_CHECKING:
    from fleet.model.inventory import Host
    from fleet.model.plan import DevicePlan
    from fleet.model.playbook import Playbook
    from fleet.transport import Transport

CLEAN_SECONDS = 20.0  # the end of a session, in which fleet removes its files
_STOP_SECONDS = 2.0  # the device ends a program this much earlier than the connection is cut
_WORTH_BYTES = 16 << 20  # less takes seconds on any link

D = TypeVar("D", bound=Deadline)


def left(host: Host) -> float | None:
    """Return the seconds left for work, negative after the end; None without a budget."""
    return None if host.until is None else host.until - CLEAN_SECONDS - time.time()


def require_time(host: Host) -> None:
    """Raise BudgetError once the budget is used up."""
    if _used_up(host):
        raise over(host)


def _used_up(host: Host) -> bool:
    rest = left(host)
    return rest is not None and rest <= _STOP_SECONDS


def within(host: Host, deadline: D) -> D:
    """Return the deadline, cut at the end of the budget. Raises BudgetError after that."""
    require_time(host)
    seconds = left(host)
    if seconds is not None:
        deadline.cut(seconds)
    return deadline


def allowed(host: Host, seconds: float) -> float:
    """Return how long a program on the device may run, so that the device ends it in time."""
    rest = left(host)
    return seconds if rest is None else min(seconds, max(rest - _STOP_SECONDS, 1.0))


def over(host: Host, why: str = "") -> BudgetError:
    """Return the error for a session whose time is used up."""
    return BudgetError(
        f"the session of {host.name} is over at {_clock(host)}, and its last "
        f"{CLEAN_SECONDS:g} s are for removing fleet's files{f': {why}' if why else ''}",
        device=host.name,
        step="budget",
        hint=f"fleet config session --end {host.name} (removes the host, and fleet's files while "
        "the session lasts); then book another session",
    )


def judged(host: Host, transport: Transport, error: FleetError) -> FleetError:
    """Return the error unchanged, or a BudgetError if the end of the budget cut the work.

    In the second case the board is also cleaned in the seconds that are left.
    """
    if not _used_up(host):
        return error
    with contextlib.suppress(FleetError):
        clean(host, transport)
    return error if isinstance(error, BudgetError) else over(host, error.message)


def clean(host: Host, transport: Transport) -> None:
    """Remove fleet's files from the board over the open connection. Raises DeviceError."""
    if transport.system == "windows":
        raise DeviceError(
            "fleet cannot clean a Windows PC",
            device=host.name,
            hint=f"remove the folder on the PC: {host.base_dir or '~/fleet'}",
        )
    result = transport.run(end_command(host.base_dir), Deadline(CLEAN_SECONDS))
    if "removed " not in result.text:
        words = result.text.strip() or result.error_text
        raise DeviceError(f"fleet's files could not be removed: {words}", device=host.name)


def too_long(
    host: Host, playbook: Playbook, plan: DevicePlan, rate: Callable[[], float]
) -> tuple[Finding, ...]:
    """Return a refusal if a deploy and its runs may end after the session; () if they fit.

    `rate` measures the link in bytes a second. It is called only if there is much to send.
    """
    rest = left(host)
    if rest is None:
        return ()
    parts = _parts(plan, playbook, rate)
    need = sum(parts.values())
    if need <= rest:
        return ()
    named = ", ".join(f"{name} {human_seconds(int(seconds))}" for name, seconds in parts.items())
    return (
        Finding(
            "session-time",
            "refuse",
            f"the playbook may take {human_seconds(int(need))} ({named}), but the session of "
            f"{host.name} ends at {_clock(host)}",
            f"{human_seconds(int(max(rest, 0)))} for work",
            human_seconds(int(need)),
            "lower `timeout:` and `repeats:` under `run:`, and `timeout:` under `health:`, in the "
            "playbook, or book a longer session",
            "`until:` of the inventory; the limits of the playbook; the link, measured now",
        ),
    )


def _parts(plan: DevicePlan, playbook: Playbook, rate: Callable[[], float]) -> dict[str, float]:
    """Return the longest seconds of `transfer`, `test` and `runs`. `rate` returns bytes/s."""
    parts, run = dict[str, float](), playbook.run
    size = sum(action.bytes for action in plan.actions)
    if size > _WORTH_BYTES:
        parts["transfer"] = size / rate()
    if plan.actions and "health" in plan.manifest.origin:
        parts["test"] = playbook.health_timeout
    if run is not None:
        parts["runs"] = run.timeout * (run.repeats + run.warmups)
    return parts


def _clock(host: Host) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(host.until or 0))
