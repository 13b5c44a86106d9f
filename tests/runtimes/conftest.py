"""An empty store for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.runtimes.store import RuntimeStore


@pytest.fixture
def store(tmp_path: Path) -> RuntimeStore:
    return RuntimeStore(tmp_path / "runtimes")
