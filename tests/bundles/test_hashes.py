"""Hashes: once for each file, and never a stale one."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from fleet.bundles import hashes
from fleet.bundles.hashes import HashCache, read_sums
from fleet.bundles.inspect import inspect_bundle
from fleet.model.errors import BundleError

from .conftest import V73, MakeFolder

OLD = 1_000_000_000  # seconds: long settled


@pytest.fixture
def big(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(hashes, "_MIN_BYTES", 1)
    path = tmp_path / "big.bin"
    path.write_bytes(b"one")
    os.utime(path, (OLD, OLD))
    return path


def digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def test_a_hash_is_remembered(big: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = HashCache()
    assert cache.sha256(big) == digest(b"one")
    cache.save()
    monkeypatch.setattr(hashes, "sha256_file", lambda path: pytest.fail("hashed again"))
    assert HashCache().sha256(big) == digest(b"one")
    assert len(json.loads((home / "hashes.json").read_text())) == 1


def test_a_changed_file_is_hashed_again(big: Path) -> None:
    cache = HashCache()
    cache.sha256(big)
    big.write_bytes(b"two")
    os.utime(big, (OLD, OLD + 1))
    assert cache.sha256(big) == digest(b"two")


def test_a_file_of_just_now_is_not_remembered(big: Path, home: Path) -> None:
    os.utime(big)
    cache = HashCache()
    cache.sha256(big)
    cache.save()
    assert not (home / "hashes.json").exists()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1}', "\0"])
def test_a_broken_cache_is_passed_over(big: Path, home: Path, text: str) -> None:
    home.mkdir()
    (home / "hashes.json").write_text(text)
    assert HashCache().sha256(big) == digest(b"one")


def test_a_home_that_cannot_be_written(big: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = HashCache(tmp_path / "file" / "hashes.json")
    assert cache.sha256(big) == digest(b"one")
    cache.save()


def test_sums(tmp_path: Path) -> None:
    path = tmp_path / "SHA256SUMS"
    path.write_text(f"# made by hand\n{'A' * 64}  ./a b.bin\n\n{'b' * 64} *c.bin\n")
    assert read_sums(path) == {"a b.bin": "a" * 64, "c.bin": "b" * 64}
    path.write_text("abc  x.bin\n")
    with pytest.raises(BundleError, match="line 1"):
        read_sums(path)


def test_sums_of_a_bundle(make_folder: MakeFolder) -> None:
    folder = make_folder(V73)
    right = digest((folder / V73).read_bytes())
    lines = [f"{right}  {V73}", f"{'0' * 64}  tokenizer.json", f"{'1' * 64}  not-sent.bin"]
    (folder / "SHA256SUMS").write_text("\n".join(lines))
    bundle = inspect_bundle(folder)
    (wrong,) = bundle.wrong_hashes
    assert (wrong.name, wrong.expected, wrong.found) == ("tokenizer.json", "0" * 64, digest(b"{}"))
    assert not bundle.usable
