"""How fast a device's program hashes a store, beside its hash tool alone; opt-in."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.ops import fsck

from .board import Board
from .test_fsck import ask

GIB = 1 << 30
ROUNDS = 3
LEAST = 0.8


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dash", "python"])
def test_a_gibibyte_takes_little_longer_than_the_hash_tool_alone(
    tmp_path: Path, kind: str, record_property: Callable[[str, object], None]
) -> None:
    """Side by side, in turn, both with the lowest priority; the best round of each counts."""
    board = Board(tmp_path, kind)
    store = board.base / "store"
    store.mkdir(parents=True)
    shas = ["0" * 63 + str(n) for n in range(4)]
    for n, sha in enumerate(shas):
        with (store / sha).open("wb") as stream:
            for _ in range(GIB // len(shas) >> 20):
                stream.write(bytes([n]) * (1 << 20))
    paths = [str(store / sha) for sha in shas]
    alone, ours = [], []
    for _ in range(ROUNDS):
        began = time.monotonic()
        subprocess.run(["nice", "-n", "19", "sha256sum", *paths], check=True, capture_output=True)
        alone.append(time.monotonic() - began)
        began = time.monotonic()
        found = ask(board, "look")
        ours.append(time.monotonic() - began)
    assert len(found.hashes) == len(shas)
    assert fsck.damages(found, str(board.base), hashed=True)
    ratio = min(alone) / min(ours)
    said = f"{GIB / min(ours) / 1e6:.0f} MB/s, {ratio:.2f} of sha256sum alone"
    record_property("speed", said)
    assert ratio >= LEAST, said
