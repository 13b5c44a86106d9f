"""What of the sources goes: every file under its name, and a word for what cannot go."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from fleet.content import sources
from fleet.content.sources import SourceFiles
from fleet.model.errors import InputError
from fleet.model.files import FileRef


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def files_of(sources: Sequence[Path]) -> tuple[FileRef, ...]:
    return SourceFiles(sources).start().files()


def put(path: Path, text: str, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    top = tmp_path / "source"
    put(top / "d.txt", "1")
    put(top / "d" / "x", "2")
    put(top / "d" / ".hidden", "3")
    put(top / "d-e" / "tool.sh", "4", 0o755)
    put(top / "é", "5")
    (top / "link").symlink_to("d/x")
    (top / "empty").mkdir()
    return top


def test_all_files_of_a_folder_in_order(source: Path) -> None:
    found = files_of([source])
    names = ["d/.hidden", "d/x", "d-e/tool.sh", "d.txt", "link", "é"]
    assert [one.name for one in found] == names
    assert [one.source for one in found] == [source / name for name in names]
    for one in found:
        data = one.source.read_bytes()
        assert (one.size, one.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert [one.name for one in found if one.executable] == ["d-e/tool.sh"]


def test_the_second_time_nothing_is_read(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = files_of([source])
    monkeypatch.delattr(sources, "contents")
    assert files_of([source]) == first
    monkeypatch.undo()
    (source / "d.txt").chmod(0o755)
    assert [one.name for one in files_of([source]) if one.executable] == ["d-e/tool.sh", "d.txt"]


def test_several_sources(source: Path, tmp_path: Path) -> None:
    other = put(tmp_path / "other" / "f", "6", 0o700).parent
    alone = put(tmp_path / "one.bin", "7")
    names = {one.name: one.source for one in files_of([source / "d", other, alone])}
    assert names == {
        "d/.hidden": source / "d" / ".hidden",
        "d/x": source / "d" / "x",
        "other/f": other / "f",
        "one.bin": alone,
    }


def test_where_one_stands_does_not_matter(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = [(one.name, one.sha256) for one in files_of([source])]
    monkeypatch.chdir(source)
    here = files_of([Path()])
    assert [(one.name, one.sha256) for one in here] == there
    assert here[1].source == Path("d/x")


def test_links(source: Path, tmp_path: Path) -> None:
    put(tmp_path / "outside", "o")
    for target, words in (
        ("../outside", "points outside of"),
        ("../none", "points outside of"),
        ("d", "link to a folder"),
        ("none", "is neither a file nor a folder"),
        ("d/loop", "is neither a file nor a folder"),
    ):
        link = source / "d" / "loop" if target == "d/loop" else source / "bad"
        link.symlink_to(source / target if target == "d/loop" else target)
        with pytest.raises(InputError, match=words) as caught:
            files_of([source])
        assert str(link) in caught.value.message
        link.unlink()
    (tmp_path / "way").symlink_to(source)
    assert [one.name for one in files_of([tmp_path / "way"])] == [
        one.name for one in files_of([source])
    ]


def test_what_is_no_file(source: Path) -> None:
    pipe = source / "d" / "pipe"
    os.mkfifo(pipe)
    for what in (source, pipe):
        with pytest.raises(InputError, match="pipe is neither a file nor a folder"):
            files_of([what])


def test_a_folder_that_cannot_be_read_is_not_left_out(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.scandir

    def refused(path: str) -> object:
        if path == str(source / "d"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(
        InputError, match=r"cannot read the file .*/source/d to send it: Permission denied"
    ):
        files_of([source])
