"""The tier of the real programs: `make test-programs`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.conftest import bench, board_server

__all__ = ["bench", "board_server"]
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.programs)
