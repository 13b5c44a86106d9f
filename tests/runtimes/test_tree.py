from __future__ import annotations

import os
import shutil
import stat
import zipfile
from pathlib import Path

import pytest

from fleet.model.errors import RuntimeStoreError
from fleet.runtimes import stage, tree
from fleet.runtimes.store import RuntimeStore
from tests.runtimes.fakes import ARM, elf, sdk_files, wheel_files, write_tree, write_zip


@pytest.mark.parametrize(
    "name", ["/etc/evil", "../evil", "qairt/../../evil", "C:/evil", "lib\\..\\evil"]
)
def test_names_that_leave_the_folder_are_refused(
    store: RuntimeStore, tmp_path: Path, name: str
) -> None:
    archive = write_zip(tmp_path / "x.zip", sdk_files())
    with zipfile.ZipFile(archive, "a") as file:
        info = zipfile.ZipInfo("x")
        info.filename = name
        file.writestr(info, b"evil")
    with pytest.raises(RuntimeStoreError, match="has a path outside the folder"):
        store.add(archive)
    assert not list(tmp_path.rglob("evil"))


def test_a_needed_link_is_refused_and_others_are_passed_over(
    store: RuntimeStore, tmp_path: Path
) -> None:
    def with_link(name: str) -> Path:
        archive = write_zip(tmp_path / f"{Path(name).name}.zip", sdk_files())
        with zipfile.ZipFile(archive, "a") as file:
            info = zipfile.ZipInfo(name)
            info.create_system = 3
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            file.writestr(info, b"/etc/passwd")
        return archive

    assert store.add(with_link("docs/link")).changed
    with pytest.raises(RuntimeStoreError, match="is a link"):
        store.add(with_link(f"lib/{ARM}/libQnnGpu.so"))


def test_a_bomb_is_refused_before_it_is_unpacked(store: RuntimeStore, tmp_path: Path) -> None:
    bomb = elf() + bytes(50_000_000)
    archive = write_zip(tmp_path / "x.zip", sdk_files() | {f"lib/{ARM}/libQnnGpu.so": bomb})
    with pytest.raises(
        RuntimeStoreError, match=r"would grow from .* to 50\.0 MB, but the limit is 12"
    ):
        store.add(archive)


def test_a_large_member_that_is_not_needed_does_no_harm(
    store: RuntimeStore, tmp_path: Path
) -> None:
    files = sdk_files() | {"docs/large.html": bytes(50_000_000)}
    assert store.add(write_zip(tmp_path / "x.zip", files)).targets == (ARM,)


def test_a_lying_size_is_found(store: RuntimeStore, tmp_path: Path) -> None:
    """The central directory says one byte more than there is."""
    archive = write_zip(tmp_path / "x.whl", wheel_files())
    data = bytearray(archive.read_bytes())
    at = data.index(b"onnxruntime_qnn/libGenie.so", data.index(b"PK\x01\x02")) - 46
    data[at + 24] += 1
    archive.write_bytes(data)
    with pytest.raises(RuntimeStoreError, match=r"libGenie\.so"):
        store.add(archive)
    assert store.list() == ()


def test_a_flipped_byte_is_found(store: RuntimeStore, tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "x.whl", wheel_files())
    data = bytearray(archive.read_bytes())
    at = data.index(b"onnxruntime_qnn/libGenie.so") + len("onnxruntime_qnn/libGenie.so")
    data[at + 20] ^= 0xFF
    archive.write_bytes(data)
    with pytest.raises(RuntimeStoreError, match="cannot extract"):
        store.add(archive)
    assert store.list() == ()


@pytest.mark.parametrize(
    ("bytes_at", "words"),
    [
        ({6: 0x40}, "zip file version 6.4"),
        ({9: 0x08, 46: 0x80}, "not valid UTF-8"),
        ({46: 0}, "a file has no name"),
    ],
)
def test_what_zipfile_cannot_read_is_our_error(
    store: RuntimeStore, tmp_path: Path, bytes_at: dict[int, int], words: str
) -> None:
    """Something of the central directory is another one; hypothesis found these."""
    archive = write_zip(tmp_path / "x.whl", wheel_files())
    data = bytearray(archive.read_bytes())
    entry = data.index(b"PK\x01\x02")
    for at, value in bytes_at.items():
        data[entry + at] = value
    archive.write_bytes(data)
    with pytest.raises(RuntimeStoreError, match=words):
        store.add(archive)
    assert store.list() == ()


def test_an_unusual_compression_is_refused(store: RuntimeStore, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.whl", "w", zipfile.ZIP_BZIP2) as archive:
        for name, data in wheel_files().items():
            archive.writestr(name, data)
    with pytest.raises(RuntimeStoreError, match="uses the compression method 12"):
        store.add(tmp_path / "x.whl")


def test_a_half_downloaded_zip_is_refused(store: RuntimeStore, tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "x.whl", wheel_files())
    archive.write_bytes(archive.read_bytes()[:-100])
    with pytest.raises(RuntimeStoreError, match="not a zip file, or is damaged"):
        store.add(archive)


def test_an_sdk_folder_is_linked_not_copied(tmp_path: Path) -> None:
    """A hard link or a reflink; the name in the store is its own file for the user."""
    sdk = write_tree(tmp_path / "sdk", {"lib/t/libQnnHtp.so": elf()})
    tree.FolderTree(sdk).place("lib/t/libQnnHtp.so", tmp_path / "out.so")
    assert (tmp_path / "out.so").read_bytes() == elf()
    assert not (tmp_path / "out.so").is_symlink()


def test_where_links_are_refused_files_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    sdk = write_tree(tmp_path / "sdk", {"lib/t/libQnnHtp.so": elf()})
    tree.FolderTree(sdk).place("lib/t/libQnnHtp.so", tmp_path / "out.so")
    assert (tmp_path / "out.so").read_bytes() == elf()
    assert (tmp_path / "out.so").stat().st_nlink == 1


def test_a_link_in_an_sdk_folder_becomes_a_file(store: RuntimeStore, tmp_path: Path) -> None:
    sdk = write_tree(tmp_path / "sdk", sdk_files() | {f"lib/{ARM}/libc++.so.1.0": elf()})
    (sdk / f"lib/{ARM}/libc++.so.1").symlink_to("libc++.so.1.0")
    runtime = store.add(sdk)
    assert (runtime.root / f"lib/{ARM}/libc++.so.1").is_file()
    assert not (runtime.root / f"lib/{ARM}/libc++.so.1").is_symlink()


def test_a_full_disk_is_said_beforehand(
    store: RuntimeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "_HEADROOM_BYTES", 1 << 60)
    with pytest.raises(
        RuntimeStoreError,
        match=r"needs .* MB for the runtime and a reserve of .* MB, but only .* MB are free",
    ) as caught:
        store.add(write_zip(tmp_path / "x.whl", wheel_files()))
    assert "FLEET_HOME" in caught.value.hint


TOOL = f"bin/{ARM}/qnn-net-run"


def runs(store: RuntimeStore, name: str = TOOL) -> bool:
    return os.access(store.list()[0].root / name, os.X_OK)


def unzipped(folder: Path) -> Path:
    """An SDK as its publisher's zip unpacks: programs can be started."""
    sdk = write_tree(folder, sdk_files())
    for path in (sdk / "bin" / ARM).iterdir():
        path.chmod(0o755)
    return sdk


def test_programs_of_a_zip_can_be_started(store: RuntimeStore, tmp_path: Path) -> None:
    shutil.make_archive(str(tmp_path / "sdk"), "zip", unzipped(tmp_path / "sdk"))
    store.add(tmp_path / "sdk.zip")
    assert runs(store)
    assert not runs(store, f"lib/{ARM}/libQnnHtp.so"), "as it is in the zip"


def test_programs_of_a_zip_that_knows_no_modes_can_be_started(
    store: RuntimeStore, tmp_path: Path
) -> None:
    """Made on Windows: the members have attributes of DOS only."""
    archive = tmp_path / "x.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name, data in sdk_files().items():
            info = zipfile.ZipInfo(name)
            info.create_system = 0
            info.external_attr = 0x20
            file.writestr(info, data)
    store.add(archive)
    assert runs(store)


@pytest.mark.parametrize("how", ["linked", "copied", "reflinked"])
def test_programs_of_a_folder_can_be_started(
    store: RuntimeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    def cloned(source: Path, destination: Path) -> bool:
        with destination.open("xb") as new:
            new.write(source.read_bytes())
        return True

    if how == "reflinked":
        monkeypatch.setattr(tree, "_reflink", cloned)
    if how == "copied":
        monkeypatch.setattr(os, "link", refuse)
    store.add(unzipped(tmp_path / "sdk"))
    assert runs(store)


def test_a_mode_that_a_zip_claims_gives_no_other_rights(
    store: RuntimeStore, tmp_path: Path
) -> None:
    """Neither set-user-ID nor writable by all."""
    archive = tmp_path / "x.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name, data in sdk_files().items():
            info = zipfile.ZipInfo(name)
            info.create_system = 3
            info.external_attr = (stat.S_IFREG | 0o6777) << 16
            file.writestr(info, data)
    store.add(archive)
    mode = stat.S_IMODE((store.list()[0].root / TOOL).stat().st_mode)
    assert mode & 0o111 == 0o111
    assert mode & ~0o755 == 0
