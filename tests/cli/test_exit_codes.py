"""Exit codes of what became of several devices: 0 only where every one is as it was asked to be."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import typer

from fleet.cli.common import end_devices
from fleet.engine.pool import DeviceResult, PoolOptions, on_every_device
from fleet.engine.session import Session
from fleet.model import errors
from fleet.model.errors import FleetError
from fleet.model.inventory import Host

# What a device can come to: outcome, error, and the exit code of it alone.
ENDS: dict[str, tuple[str, FleetError | None, int]] = {
    "changed": ("changed", None, 0),
    "unchanged": ("unchanged", None, 0),
    "ran": ("ran", None, 0),
    "runs that do not count": ("failed", None, 1),
    "refused": ("refused", errors.PreflightError("no"), 1),
    "disk full": ("failed", errors.DiskFullError("no"), 1),
    "no session": ("failed", errors.HealthError("no"), 1),
    "lease lost": ("failed", errors.LeaseLostError("no"), 1),
    "unreachable": ("unreachable", errors.UnreachableError("no"), 3),
    "cut": ("unreachable", errors.ConnectionLostError("no"), 3),
    "wrong key": ("unreachable", errors.HostKeyError("no"), 3),
}


def code_of(results: list[DeviceResult[Any]]) -> int:
    try:
        end_devices(results)
    except typer.Exit as left:
        return int(left.exit_code)
    return 0


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_mixture(count: int) -> None:
    for mixture in itertools.product(ENDS, repeat=count):
        results = [
            DeviceResult[None](Host(f"evk{n}"), outcome=ENDS[name][0], error=ENDS[name][1])
            for n, name in enumerate(mixture)
        ]
        code = code_of(results)
        assert (code == 0) == all(ENDS[name][2] == 0 for name in mixture), mixture
        assert code == max(ENDS[name][2] for name in mixture), mixture


def test_a_device_that_nobody_judged_has_failed() -> None:
    """Work that ends without a word is no success."""
    assert code_of([DeviceResult(Host("evk"))]) == 1


@pytest.mark.parametrize("crash", [ValueError("x"), KeyError("y"), RecursionError(), OSError("z")])
def test_a_crash_of_the_work_is_a_failed_device_and_no_success(
    crash: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "open", lambda self: None)

    def work(session: Session, result: DeviceResult[Any]) -> None:
        result.outcome = "changed"
        if session.host.name == "evk1":
            raise crash

    hosts = [Host("evk0"), Host("evk1"), Host("evk2")]
    results = on_every_device(hosts, work, lambda _: None, PoolOptions(parallel=3))
    assert [one.outcome for one in results] == ["changed", "failed", "changed"]
    assert code_of(results) == 1
