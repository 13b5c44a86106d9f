"""The ladder on boards of the lab: whole, and with one thing broken at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fleet.config.inventory import load_inventory
from fleet.engine.lease.lease import Lease
from fleet.engine.session import Session
from fleet.model.errors import LeaseHeldError
from fleet.model.plain import to_plain
from fleet.selftest.climb import Selftest, SelftestOptions
from fleet.selftest.ladder import FELL, HOLDS, UNDECIDED, Climbed, rungs

from .conftest import BOARD, PHONE, Hill

pytestmark = [pytest.mark.root, pytest.mark.qairt]

WHOLE_SECONDS = 180.0  # what an owner of a board is told


def fallen(climbed: Climbed) -> list[str]:
    return [step.rung.id for step in climbed.steps if step.status == FELL]


def status(climbed: Climbed) -> dict[str, str]:
    return {step.rung.id: step.status for step in climbed.steps}


def test_a_board_climbs_all_of_it(hill: Hill) -> None:
    result, climbed = hill.climb(BOARD, runtime=True, bulk=256 << 20)
    assert result.outcome == "ok", result.text
    assert [step.rung for step in climbed.steps] == list(rungs())
    assert all(step.listed for step in climbed.steps), [s for s in climbed.steps if not s.listed]
    holds = {name for name, said in status(climbed).items() if said == HOLDS}
    assert holds >= {
        "transfer",
        "files",
        "device",
        "context",
        "genie",
        "token-limit",
        "ort",
        "kill",
    }
    assert climbed.facts.emulated
    assert to_plain(climbed)["kind"] == "lab"
    words = next(step.words for step in climbed.steps if step.rung.id == "contexts")
    assert words.count("contextCreateFromBinary") >= 5, "each other arch was tried"
    assert sum(step.seconds for step in climbed.steps) < WHOLE_SECONDS
    assert "cdsp running" in climbed.parts["remoteproc"]
    assert "selftest" not in hill.as_root(BOARD, "find /home/ubuntu")


def test_a_phone_climbs_what_needs_no_root(hill: Hill) -> None:
    result, climbed = hill.climb(PHONE, runtime=True, bulk=256 << 20)
    assert result.outcome == "ok", result.text
    assert all(step.listed for step in climbed.steps), [s for s in climbed.steps if not s.listed]
    holds = {name for name, said in status(climbed).items() if said == HOLDS}
    assert holds == {
        *("disk", "tools", "soc", "nodes", "heap", "library", "variables", "transfer"),
    }
    assert "ro.soc.model" in climbed.parts["getprop"]
    assert "selftest" not in hill.as_root(PHONE, "ls -a /data/local/tmp/fleet")


def test_nothing_is_climbed_where_somebody_else_works(hill: Hill) -> None:
    (host,) = [host for host in load_inventory(hill.lab.inventory).hosts if host.name == BOARD]
    session = Session(host, lambda _: None)
    session.open()
    try:
        with Lease(session, "the first one") as first:
            first.take()
            second = Selftest([host], lambda _: None, hill.store, SelftestOptions())
            (result,) = second.run()
    finally:
        session.close()
    assert isinstance(result.error, LeaseHeldError), result.error
    assert second.climbed == {}, "a ladder of one rung, and an archive of it"


def test_without_a_runtime_it_is_said(hill: Hill) -> None:
    _, climbed = hill.climb(BOARD)
    (step,) = [step for step in climbed.steps if step.rung.id == "device"]
    assert (step.status, step.reason) == (UNDECIDED, "no --runtime")


# The state of a board: what makes it, what takes it back, and the first rung that falls.
_GONE = "mv {0} {0}.gone", "mv {0}.gone {0}"
_RULES = "/etc/udev/rules.d/60-x.rules"
_RULE = 'KERNEL=="fastrpc-*", ACTION=="add", GROUP="fastrpc", MODE="0660"'
_STDLIB = "/usr/lib/python3.11"
OWN = {
    "heap-root-only": ("chmod 600 /dev/dma_heap/system", "chmod 660 /dev/dma_heap/system", "heap"),
    "no-shell": (*(text.format("/usr/lib/dsp") for text in _GONE), "dsp"),
    "no-wc": (*(text.format("/usr/bin/wc") for text in _GONE), "tools"),
    "no-od": (*(text.format("/usr/bin/od") for text in _GONE), "tools"),
    "find-that-lies": (
        "mv /usr/bin/find /usr/bin/find.gone; cp /bin/true /usr/bin/find",
        "mv /usr/bin/find.gone /usr/bin/find",
        "tools",
    ),
    "rules-not-applied": (
        f"chown root:root /dev/fastrpc-*; chmod 600 /dev/fastrpc-*; echo '{_RULE}' > {_RULES}",
        f"rm {_RULES}; chown root:fastrpc /dev/fastrpc-*; chmod 660 /dev/fastrpc-*",
        "rules",
    ),
}
WITH_RUNTIME = {
    "small-disk": "files",
    "no-libgcc": "backend",
    "no-argparse": "genie",
    "no-secrets": "ort",
}
OWN |= {
    "no-libgcc": (
        "cd /usr/lib/x86_64-linux-gnu; mkdir /run/gcc; mv libgcc_s.so.1 /run/gcc/; ldconfig",
        "mv /run/gcc/* /usr/lib/x86_64-linux-gnu/; ldconfig",
        "backend",
    ),
    "no-argparse": (*(text.format(f"{_STDLIB}/argparse.py") for text in _GONE), "genie"),
    "no-secrets": (*(text.format(f"{_STDLIB}/secrets.py") for text in _GONE), "ort"),
}
LAB = {
    "node-root-only": "nodes",
    "no-node": "nodes",
    "left-group": "nodes",
    "wrong-soc": "soc",
    "full-disk": "disk",
    "read-only": "disk",
    "noexec": "disk",
    "small-disk": "files",
    "no-libcdsprpc": "library",
    "old-libcdsprpc": "library",
    "soname-only": "library",
    "cdsp-offline": "dsp",
    "no-firmware": "dsp",
    "separator": "variables",
    "dsp-path": "variables",
}
ON_PHONE = {
    "node-root-only": "nodes",
    "full-data": "disk",
    "read-only": "disk",
    "noexec-storage": "disk",
}
FAULTS = [
    *((BOARD, fault, rung) for fault, rung in LAB.items()),
    *((BOARD, fault, row[2]) for fault, row in OWN.items()),
    *((PHONE, fault, rung) for fault, rung in ON_PHONE.items()),
]


@contextmanager
def broken(hill: Hill, name: str, fault: str) -> Iterator[None]:
    if fault in OWN:
        hill.as_root(name, OWN[fault][0])
    else:
        hill.lab.fault(name, fault)
    try:
        yield
    finally:
        if fault in OWN:
            hill.as_root(name, OWN[fault][1])
        else:
            hill.lab.heal(name, fault)


def test_there_are_25_faults() -> None:
    assert len(FAULTS) >= 25


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fault", "rung"), FAULTS)
def test_the_rung_that_must_fall_falls_and_none_before_it(
    hill: Hill, name: str, fault: str, rung: str
) -> None:
    started = time.monotonic()
    with broken(hill, name, fault):
        result, climbed = hill.climb(name, runtime=fault in WITH_RUNTIME)
    assert time.monotonic() - started < WHOLE_SECONDS
    assert result.outcome == "failed"
    assert fallen(climbed)[:1] == [rung], status(climbed)
    step, row = climbed.first or pytest.fail("nothing fell")
    assert step.rung.id == rung
    assert row is not None
    assert step.observed
    above = [s for s in climbed.steps if rung in s.rung.needs]
    assert all(s.status == UNDECIDED for s in above)
    assert all(s.listed for s in climbed.steps), [s for s in climbed.steps if not s.listed]
