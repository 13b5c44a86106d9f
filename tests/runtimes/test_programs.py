"""Programs in archives: downloaded and unpacked once, nothing outside, whole or not at all."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.config.playbook import load_playbook
from fleet.model.errors import FleetError, InputError, PlaybookError, RuntimeStoreError
from fleet.model.playbook import RunSpec
from fleet.runtimes.programs import bring_program, remove_program, stored_programs
from fleet.runtimes.stage import silent

from .webserver import FileServer

FILES = {"top/bin/run": b"#!/bin/sh\n", "top/lib/a/x.so": b"a", "top/lib/b/x.so": b"b"}
Change = Callable[[tarfile.TarFile], None]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def tar(change: Change | None = None) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, content in FILES.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755 if "bin" in name else 0o644
            archive.addfile(info, io.BytesIO(content))
        if change is not None:
            change(archive)
    return data.getvalue()


def zipped() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in FILES.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o100755 if "bin" in name else 0o100644) << 16
            archive.writestr(info, content)
    return data.getvalue()


def spec(folder: Path, source: str, data: bytes, file: str = "bin/run") -> RunSpec:
    (folder / "b").mkdir(exist_ok=True)
    (folder / "b/data").write_text("x")
    digest = hashlib.sha256(data).hexdigest()
    (folder / "p.yaml").write_text(
        f"name: n\nbundle: {{path: b, kind: files}}\nrun:\n  runner: exec\n  program:\n"
        f"    archive: {source}\n    sha256: {digest}\n    file: {file}\n"
    )
    run = load_playbook(folder / "p.yaml").run
    assert run is not None
    return run


@pytest.fixture
def server() -> Iterator[FileServer]:
    found = FileServer(tar())
    thread = threading.Thread(target=found.serve_forever)
    thread.start()
    yield found
    found.over.set()
    found.shutdown()
    thread.join()
    found.server_close()


@pytest.mark.parametrize("data", [tar(), zipped()], ids=["tar", "zip"])
def test_an_archive_is_unpacked_once_with_its_folders(
    tmp_path: Path, home: Path, data: bytes
) -> None:
    (tmp_path / "x.tgz").write_bytes(data)
    run = spec(tmp_path, "x.tgz", data)
    bring_program(run, silent)
    assert run.program is not None
    assert run.program.read_bytes() == FILES["top/bin/run"]
    assert run.program.stat().st_mode & 0o111
    root = run.program.parent.parent
    assert root.parent == home / "programs"
    assert (root / "lib/b/x.so").read_bytes() == b"b"
    (tmp_path / "x.tgz").unlink()
    again = spec(tmp_path, "x.tgz", data)
    bring_program(again, silent, offline=True)
    assert again.program == run.program


def test_a_url_is_fetched_once_and_never_offline(tmp_path: Path, server: FileServer) -> None:
    run = spec(tmp_path, server.url, server.content)
    with pytest.raises(RuntimeStoreError, match="forbids a download"):
        bring_program(run, silent, offline=True)
    assert not server.seen
    server.cuts = [40]
    bring_program(run, silent)
    asked = len(server.seen)
    bring_program(run, silent)
    assert len(server.seen) == asked == 2
    assert run.program is not None
    assert run.program.is_file()


def test_another_file_behind_the_url_is_refused(tmp_path: Path, server: FileServer) -> None:
    run = spec(tmp_path, server.url, b"what the publisher had")
    with pytest.raises(RuntimeStoreError, match="has the SHA-256"):
        bring_program(run, silent)
    assert run.program is not None
    assert not run.program.parent.parent.exists()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> Change:
    def change(archive: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, target
        archive.addfile(info)

    return change


def member(name: str) -> Change:
    def change(archive: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))

    return change


@pytest.mark.parametrize(
    "change",
    [
        member("/etc/evil"),
        member("top/../../evil"),
        member("top/bin/run"),
        link("top/passwd", "/etc/passwd"),
        link("top/up", "../../../etc/passwd"),
        link("top/round", "round"),
        link("top/device", "", tarfile.CHRTYPE),
    ],
    ids=["absolute", "above", "twice", "link", "link above", "circle", "device"],
)
def test_a_hostile_archive_leaves_nothing(tmp_path: Path, home: Path, change: Change) -> None:
    data = tar(change)
    (tmp_path / "x.tgz").write_bytes(data)
    with pytest.raises(FleetError):
        bring_program(spec(tmp_path, "x.tgz", data), silent)
    assert not list(tmp_path.rglob("evil"))
    assert not list(home.glob("programs/*"))


def test_a_link_within_the_archive_is_a_copy(tmp_path: Path) -> None:
    data = tar(link("top/lib/libx.so.1", "a/x.so"))
    (tmp_path / "x.tgz").write_bytes(data)
    run = spec(tmp_path, "x.tgz", data)
    bring_program(run, silent)
    assert run.archive is not None
    copy = run.archive.folder / "lib/libx.so.1"
    assert (copy.read_bytes(), copy.is_symlink()) == (b"a", False)


@pytest.mark.parametrize("data", [b"", b"no archive", tar()[:60]], ids=["empty", "text", "cut"])
def test_a_damaged_archive_is_one_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.tgz").write_bytes(data)
    with pytest.raises(RuntimeStoreError):
        bring_program(spec(tmp_path, "x.tgz", data), silent)


def test_a_file_that_the_archive_lacks_names_the_one_that_it_has(tmp_path: Path) -> None:
    data = tar()
    (tmp_path / "x.tgz").write_bytes(data)
    with pytest.raises(InputError, match="does not contain run") as error:
        bring_program(spec(tmp_path, "x.tgz", data, "run"), silent)
    assert "`file: bin/run`" in error.value.hint


@pytest.mark.parametrize(
    ("source", "file", "words"),
    [
        ("none.tgz", "bin/run", "the archive .*none.tgz does not exist"),
        ("x.tgz", "../run", "'../run' is not a valid file of an archive"),
        ("x.tgz", "a/../../run", "is not a valid file of an archive"),
        ("x.tgz", "/bin/run", "is not a valid file of an archive"),
    ],
)
def test_a_playbook_that_cannot_be_right_is_refused_with_its_line(
    tmp_path: Path, source: str, file: str, words: str
) -> None:
    (tmp_path / "x.tgz").write_bytes(tar())
    with pytest.raises(PlaybookError, match=words) as error:
        spec(tmp_path, source, tar(), file)
    assert "p.yaml:" in str(error.value)


def test_archives_are_listed_with_their_playbooks_and_removed(tmp_path: Path, home: Path) -> None:
    one, other = tar(), zipped()
    for data in (one, other):
        (tmp_path / "a").write_bytes(data)
        bring_program(spec(tmp_path, str(tmp_path / "a"), data), silent)
    names = [hashlib.sha256(data).hexdigest() for data in (one, other)]
    rows = {row["sha256"]: row for row in stored_programs(tmp_path)}
    assert set(rows) == set(names)
    assert rows[names[0]]["used_by"] == []
    assert rows[names[1]]["used_by"] == [str(tmp_path / "p.yaml")]
    assert all(row["size"] >= sum(map(len, FILES.values())) for row in rows.values())
    for wrong in ("", "0" * 64):
        with pytest.raises(InputError, match="archives of programs"):
            remove_program(wrong)
    assert remove_program(names[0][:10]) == names[0]
    assert [path.name for path in (home / "programs").glob("?" * 64)] == [names[1]]
