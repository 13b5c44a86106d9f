"""What is on the disk before a name leads to it: each flush, and what the names were just then.

A power cut shows the same on a kernel of its own (tests/vm, slow); here a flush that is gone, or
comes too late, fails within a second.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.model.plan import Blob
from fleet.ops.frames import SMALL, SMALL_FOR_WORKER

from .board import Board, make_files, manifest

SYNC = """#!/bin/sh
for path do :; done
size=$(wc -c < "$path" 2>/dev/null)
names=$(ls "$FLUSHED_BASE/store" 2>/dev/null | tr '\\n' ' ')
printf '%s\\t%s\\t%s\\t%s\\n' "$*" "${size:-0}" "$names" \
  "$(readlink "$FLUSHED_BASE/current/app")" >> "$FLUSHED_LOG"
exec REAL "$@"
"""
FSYNC = """
import os
def recorded(file, fsync=os.fsync, base=os.environ["FLUSHED_BASE"]):
    fsync(file)
    names = " ".join(os.listdir(base + "/store"))
    live = base + "/current/app"
    live = os.readlink(live) if os.path.islink(live) else ""
    with open(os.environ["FLUSHED_LOG"], "a") as log:
        log.write("%s\\t%d\\t%s\\t%s\\n" % (file, os.fstat(file).st_size, names, live))
os.fsync = recorded
"""


@dataclass(frozen=True)
class Flush:
    """`words` of sync or the file, its size, what names the store had, where `current` led."""

    words: str
    size: int
    names: frozenset[str]
    live: str


class Recorded(Board):
    """Each `sync` of a script and each fsync of the program that is sent ahead is written down."""

    def __init__(self, root: Path, kind: str) -> None:
        super().__init__(root, kind)
        self.log = root / "flushes"
        self.tools.mkdir(exist_ok=True)
        sync = self.tools / "sync"
        sync.write_text(SYNC.replace("REAL", shutil.which("sync") or "sync"))
        sync.chmod(0o755)

    def argv(
        self, argv: tuple[str, ...], stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        if argv[0] == sys.executable:
            argv = (*argv[:2], FSYNC + argv[2], *argv[3:])
        told = {"FLUSHED_BASE": str(self.base), "FLUSHED_LOG": str(self.log)}
        return super().argv(argv, stdin, {**(env or {}), **told})

    def flushes(self) -> list[Flush]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        rows = [line.split("\t") for line in lines]
        return [
            Flush(words, int(size), frozenset(n.split()), live) for words, size, n, live in rows
        ]


@pytest.fixture(params=("dash", "mksh", "busybox", "python"))
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Recorded:
    return Recorded(tmp_path, request.param)


@pytest.mark.parametrize("size", [10, SMALL + 1, SMALL_FOR_WORKER + 1])
def test_a_blob_is_on_the_disk_before_it_has_its_name(
    board: Recorded, tmp_path: Path, size: int
) -> None:
    (file,) = make_files(tmp_path, {"lib/one": b"x" * size})
    board.send([Blob(file)]).check([Blob(file)], board.facts, "board", "")
    assert board.store() == {file.sha256}
    before = [flush for flush in board.flushes() if file.sha256 not in flush.names]
    assert any(flush.size >= size or "-f" in flush.words for flush in before), board.flushes()


def test_a_batch_is_on_the_disk_before_its_files_have_their_names(
    board: Recorded, tmp_path: Path
) -> None:
    blobs = [Blob(file) for file in make_files(tmp_path, {f"d/{n}": b"%d" % n for n in range(40)})]
    board.send(blobs, batches=True).check(blobs, board.facts, "board", "")
    assert len(board.store()) == len(blobs)
    for blob in blobs:
        assert any(blob.file.sha256 not in flush.names for flush in board.flushes())


def test_a_release_is_on_the_disk_before_the_switch_and_the_switch_after_it(
    board: Recorded, tmp_path: Path
) -> None:
    old = manifest(tmp_path / "old", {"model": b"old"})
    new = manifest(tmp_path / "new", {"model": b"new"})
    board.deploy(old)
    blobs = [Blob(item) for item in new.blobs.values()]
    board.send(blobs).check(blobs, board.facts, "board", "")
    assert board.stage(new).returncode == 0
    board.log.unlink()
    done = board.switch(new)
    assert done.returncode == 0, done.stderr
    lives = [flush.live.rpartition("/")[2] for flush in board.flushes()]
    assert lives == [old.id, new.id], "one flush of what it leads to, then one of the link"
