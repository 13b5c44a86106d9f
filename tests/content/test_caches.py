"""Caches on disk: whole for whoever looks, and not without end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from fleet.model.home import keep_newest, write_whole


def test_many_who_save_at_a_time(tmp_path: Path, home: Path) -> None:
    """The file is whole whenever somebody looks."""
    program = """if True:
        import sys
        from pathlib import Path
        from fleet.model.home import write_whole
        for _ in range(200):
            assert write_whole(Path(sys.argv[1]), sys.argv[2].encode() * 100_000)
    """
    path = home / "hashes.json"
    argv = [sys.executable, "-c", program, str(path)]
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(subprocess.Popen([*argv, one])) for one in "abc"]
        seen = set()
        while any(one.poll() is None for one in running):
            if path.exists():
                data = path.read_bytes()
                assert len(data) == 100_000
                assert len(set(data)) == 1
                seen.add(data[:1])
    assert seen
    assert [one.returncode for one in running] == [0, 0, 0]
    assert [one.name for one in home.iterdir()] == ["hashes.json"]


def test_what_cannot_be_written_leaves_nothing(home: Path) -> None:
    assert write_whole(home / "one", b"1")
    assert not write_whole(home / "one" / "two", b"2")
    (home / "folder").mkdir()
    assert not write_whole(home / "folder", b"3")
    assert sorted(one.name for one in home.iterdir()) == ["folder", "one"]


def test_the_newest_stay(home: Path) -> None:
    for age, name in enumerate("dacb"):
        write_whole(home / name, b"")
        os.utime(home / name, (age, age))
    keep_newest(home, 2)
    assert sorted(one.name for one in home.iterdir()) == ["b", "c"]
    keep_newest(home / "none", 2)
