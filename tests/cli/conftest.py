"""Two boards for commands that are typed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transport.sshd import running

from .desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with running(tmp_path / "one") as one, running(tmp_path / "two") as two:
        yield Desk(tmp_path, [one.host(), two.host()])
