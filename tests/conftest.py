"""Fixtures for all rooms."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from fleet.model import masking
from fleet.runtimes.store import RuntimeStore
from tests import hinting
from tests.support_runtime import ARM, NEW, X86, cached_runtime, cached_store
from tests.tiers import function_of, gate

hinting.listen()
os.environ.pop("COLUMNS", None)  # tables obey it, in pipes too


SLOW_SECONDS = 7200


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What tests/gate.txt lists is of the gate; the opt-in tiers may take long."""
    for item in items:
        if function_of(item.nodeid) in gate():
            item.add_marker(pytest.mark.gate)
        if item.get_closest_marker("slow") or item.get_closest_marker("programs"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))


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
