"""Fixtures for all rooms."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fleet.model import masking
from fleet.runtimes.store import RuntimeStore
from tests import hinting, needs
from tests.support_runtime import ARM, NEW, X86, cached_runtime, cached_store
from tests.tiers import is_gate, shells_of

# No verdict depends on the load of the machine. A fixture of a function may serve all its examples.
settings.register_profile(
    "fleet",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("fleet")
os.umask(0o022)  # no verdict depends on that of the user; what fleet keeps is private anyway
hinting.listen()
os.environ.pop("COLUMNS", None)  # tables obey it, in pipes too
# This clone, as in the Makefile: root runs it in CI, and another user may own it.
os.environ["FLEET_TRUST"] = str(Path(__file__).parents[1])


SLOW_SECONDS = 7200


LONGER = ("gate", "slow", "programs")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the gate. The opt-in tiers may take long. A folder alone means the fast tier."""
    for item in items:
        if is_gate(item):
            item.add_marker(pytest.mark.gate)
        if item.get_closest_marker("slow") or item.get_closest_marker("programs"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))
    if not config.option.markexpr and all(Path(name).is_dir() for name in config.args):
        longer = [item for item in items if any(map(item.get_closest_marker, LONGER))]
        config.hook.pytest_deselected(items=longer)
        items[:] = [item for item in items if not any(map(item.get_closest_marker, LONGER))]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Skip a case for a shell, or a fixture for a program, that this machine has not."""
    for shell in sorted(shells_of(item)):
        needs.tool(shell)
    with needs.missing_programs():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Skip a test that starts a program that this machine has not."""
    with needs.missing_programs():
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were skipped, for which reason."""
    skipped = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", ())]
    if skipped:
        terminalreporter.section(f"{len(skipped)} tests skipped")
        terminalreporter.line("\n".join(needs.summary(skipped)))


@pytest.fixture(autouse=True)
def _nothing_is_revealed() -> None:
    """A password of one test would be masked in the texts of the next one."""
    masking.forget()


@pytest.fixture(autouse=True)
def _hints_can_be_typed() -> Iterator[None]:
    yield
    assert not (wrong := hinting.wrong()), "\n".join(wrong)


@pytest.fixture(scope="session")
def qairt_store() -> RuntimeStore:
    """A store with real QAIRT 2.51.0 for x86_64 and aarch64; read only."""
    cached_runtime(NEW, X86)
    cached_runtime(NEW, ARM)
    return cached_store()
