"""Labs for tests. Namespace boards need root; user boards work for everybody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.lab import Lab
from fleet.lab.namespace import can_unshare


@pytest.fixture(scope="session")
def namespaces() -> None:
    why = can_unshare()
    if why:
        pytest.skip(f"no namespace boards here: {why}")


@pytest.fixture(scope="module")
def lab(namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root = tmp_path_factory.mktemp("lab")
    with Lab.up(root, count=2, kind="namespace", base_port=0) as one:
        yield one


@pytest.fixture
def user_lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab.up(tmp_path / "lab", count=2, kind="user", base_port=0) as one:
        yield one
