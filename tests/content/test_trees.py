"""Hashes of a folder: once for each file, and never a stale one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from fleet.content import hashes, sources
from fleet.content.hashes import HashCache
from fleet.content.sources import TreeHashes
from fleet.model.files import BLOCK_BYTES, contents
from fleet.model.plan import Blob
from fleet.ops.batches import together

OLD = 1_000_000_000  # seconds: long settled


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name in ("a", "b c", "d/e\udce9"):
        put(root / name, name.encode("utf-8", "surrogateescape"))
    return root


def put(path: Path, data: bytes, when: int = OLD) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (when, when))


def look(root: Path, *, large: HashCache | None = None) -> tuple[dict[str, str], int]:
    """The hashes of all files as a new process finds them, and how many it had to read."""
    tree = TreeHashes(root, large or HashCache())
    found = {}
    with mock.patch.object(sources, "contents", wraps=contents) as read:
        for path in sorted(root.rglob("*")):
            if path.is_file():
                name = path.relative_to(root).as_posix()
                found[name], _ = tree.sha256(name, path, path.stat())
    tree.save()
    return found, read.call_count


def truth(root: Path) -> dict[str, str]:
    paths = [path for path in root.rglob("*") if path.is_file()]
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }


def test_nothing_is_read_twice(root: Path) -> None:
    assert look(root) == (truth(root), 3)
    assert look(root) == (truth(root), 0)


def test_what_changed_is_read_and_what_went_is_forgotten(root: Path, home: Path) -> None:
    look(root)
    put(root / "a", b"A", OLD + 1)
    put(root / "new", b"new")
    (root / "b c").unlink()
    assert look(root) == (truth(root), 2)
    (file,) = (home / "trees").iterdir()
    assert b"b c" not in file.read_bytes()


def test_a_change_that_keeps_size_and_mtime_is_seen(root: Path) -> None:
    look(root)
    path = root / "a"
    before = path.stat().st_ctime_ns
    while path.stat().st_ctime_ns == before:  # of a later tick
        put(path, b"A")
    assert look(root) == (truth(root), 1)


def test_another_file_under_the_name_is_seen(root: Path) -> None:
    look(root)
    put(root / "other", b"A")
    (root / "other").replace(root / "a")
    assert look(root) == (truth(root), 1)


def test_files_of_just_now_are_not_kept(root: Path) -> None:
    os.utime(root / "a")
    assert look(root)[1] == 3
    assert look(root) == (truth(root), 1)


def test_large_files_are_left_to_the_cache_of_all(
    root: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (hashes, sources):
        monkeypatch.setattr(module, "MIN_BYTES", 3)
    large = HashCache()
    found, _ = look(root, large=large)
    large.save()
    assert found == truth(root)
    assert HashCache().known(root / "b c") == found["b c"]
    (file,) = (home / "trees").iterdir()
    assert b"b c" not in file.read_bytes()


def damaged(whole: bytes) -> Iterator[bytes]:
    yield b""
    yield b"{}"
    yield whole[:-1]
    yield whole.replace(b"tree-1", b"tree-9")
    yield whole[:-20] + bytes([whole[-20] ^ 1]) + whole[-19:]


def test_damage_is_passed_over(root: Path, home: Path) -> None:
    look(root)
    (file,) = (home / "trees").iterdir()
    whole = file.read_bytes()
    for bad in damaged(whole):
        file.write_bytes(bad)
        assert look(root) == (truth(root), 3)
        assert file.read_bytes() == whole


def test_a_home_that_cannot_be_written(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    tree = TreeHashes(root, HashCache(), tmp_path / "file" / "trees")
    assert tree.sha256("a", root / "a", (root / "a").stat())[0] == truth(root)["a"]
    tree.save()


def test_only_so_many_folders_are_kept(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_KEPT", 3)
    for n in range(5):
        put(tmp_path / f"r{n}" / "f", b"f")
        look(tmp_path / f"r{n}")
        for age, file in enumerate(sorted((home / "trees").iterdir(), key=mtime)):
            os.utime(file, (OLD + age, OLD + age))
    assert len(list((home / "trees").iterdir())) == 3
    assert [look(tmp_path / f"r{n}")[1] for n in (4, 3, 2)] == [0, 0, 0]


def mtime(path: Path) -> int:
    return path.stat().st_mtime_ns


def test_small_files_are_held_until_they_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was hashed is what goes, whatever becomes of the file; memory has a bound."""
    for name in ("a", "b c", "d/e"):
        put(tmp_path / "root" / name, name.encode())
    monkeypatch.setattr(sources, "HELD_BYTES", 6)
    files = {one.name: one for one in sources.SourceFiles([tmp_path / "root"]).start().files()}
    assert {name: one.held for name, one in files.items()} == {
        "a": b"a",
        "b c": b"b c",
        "d/e": None,
    }
    held = files["a"]
    put(tmp_path / "root" / "a", b"A")
    (data,) = [part for part, _, _ in together([Blob(held)], archive=None)][1:]
    assert (data, hashlib.sha256(b"a").hexdigest()) == (b"a", held.sha256)
    assert held == replace(held, held=None)
    assert "held=" not in repr(held)


def test_a_file_of_many_pieces_is_read_whole(tmp_path: Path) -> None:
    data = os.urandom(3 * BLOCK_BYTES + 1)
    for size in (0, 1, BLOCK_BYTES, BLOCK_BYTES + 1, len(data)):
        put(tmp_path / "f", data[:size])
        assert contents(tmp_path / "f") == data[:size]
