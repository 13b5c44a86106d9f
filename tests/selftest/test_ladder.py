"""What fleet takes for true is data: each row names what relies on it and what decides it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from fleet.bundles.context import inspect_context
from fleet.bundles.system_library import system_library
from fleet.doctor.checks import LOOKS
from fleet.doctor.session import tiny_context
from fleet.runtimes.store import RuntimeStore
from fleet.selftest.ladder import Assumption, assumptions, rungs

ROOT = Path(__file__).parents[2]
SOURCES, CONTEXTS = ROOT / "docs" / "sources", ROOT / "fleet" / "data" / "contexts"


@pytest.mark.parametrize("row", assumptions(), ids=lambda row: row.id)
def test_the_symbol_that_relies_on_it_is_there(row: Assumption) -> None:
    module, _, name = row.symbol.partition(":")
    assert hasattr(importlib.import_module(module), name), row.symbol


@pytest.mark.parametrize("row", assumptions(), ids=lambda row: row.id)
def test_a_source_among_the_pages_has_that_section(row: Assumption) -> None:
    if row.source.startswith("docs/"):
        page, _, section = row.source.rpartition(" ")
        text = (SOURCES.parents[1] / page).read_text("utf-8")
        assert re.search(rf"^## {section} ", text, re.MULTILINE), row.source


def test_ids_are_one_each_and_every_rung_serves_one() -> None:
    ids = [row.id for row in assumptions()]
    assert ids == [f"A{number}" for number in range(1, len(ids) + 1)]
    assert len(ids) >= 26
    assert {row.rung for row in assumptions()} == {rung.id for rung in rungs()}


def test_checks_of_rungs_are_the_doctors() -> None:
    assert {check for rung in rungs() for check in rung.checks} <= {look.id for look in LOOKS}


@pytest.mark.qairt
@pytest.mark.parametrize("arch", ["v68", "v69", "v73", "v75", "v79", "v81"])
def test_the_tiny_context_of_an_arch_is_of_that_arch(arch: str, qairt_store: RuntimeStore) -> None:
    """As Qualcomm's own library reads it."""
    path = CONTEXTS / f"tiny-{arch}-qairt2.47.0.bin"
    assert path.read_bytes() == tiny_context(arch)
    found = inspect_context(path, system_library(qairt_store))
    assert (found.hexagon_arch, found.problem) == (arch, "")


def test_an_arch_without_a_tiny_context_has_none() -> None:
    assert tiny_context("v66") == tiny_context(None) == b""
