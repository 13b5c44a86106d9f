"""Bundle folders that somebody made to do harm: refused with one error, nothing followed."""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.bundles.inspect import inspect_bundle
from fleet.model.errors import BundleError, FleetError, InputError

KINDS = ("files", "llama.cpp", "mllm", "executorch")


def pipe(folder: Path, _: Path) -> None:
    os.mkfifo(folder / "pipe")


def a_socket(folder: Path, _: Path) -> None:
    here = Path.cwd()
    os.chdir(folder)  # the path of a socket has 107 bytes at most
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("sock")
    finally:
        os.chdir(here)


def node(folder: Path, _: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to make a device node")
    os.mknod(folder / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))


def link_out(folder: Path, secret: Path) -> None:
    (folder / "notes.txt").symlink_to(secret / "key")


def relative_link_out(folder: Path, secret: Path) -> None:
    (folder / "notes.txt").symlink_to(f"../{secret.name}/key")


def folder_link_out(folder: Path, secret: Path) -> None:
    (folder / "data").symlink_to(secret)


def link_over_a_folder_inside(folder: Path, secret: Path) -> None:
    (folder / "in").mkdir()
    (folder / "in" / "up").symlink_to("../..")
    (folder / "notes.txt").symlink_to(f"in/up/{secret.name}/key")


def twins(folder: Path, _: Path) -> None:
    (folder / "A.txt").write_text("1")
    (folder / "a.txt").write_text("2")


def twin_folders(folder: Path, _: Path) -> None:
    for name in ("Data", "data"):
        (folder / name).mkdir()
        (folder / name / "x").write_text(name)


def line_break(folder: Path, _: Path) -> None:
    (folder / "a\nb").write_text("x")


def tab(folder: Path, _: Path) -> None:
    (folder / "a\tb").write_text("x")


def no_utf8(folder: Path, _: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe")).write_text("x")


TRICKS = [
    *(pipe, a_socket, node, link_out, relative_link_out, folder_link_out),
    *(link_over_a_folder_inside, twins, twin_folders, line_break, tab, no_utf8),
]


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, Path]:
    folder, secret = tmp_path / "bundle", tmp_path / "secret"
    folder.mkdir()
    secret.mkdir()
    (secret / "key").write_text("PRIVATE")
    (folder / "model.gguf").write_bytes(b"GGUF")
    (folder / "model.bin").write_bytes(b"bin")
    (folder / "model.pte").write_bytes(b"pte")
    return folder, secret


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trick", TRICKS, ids=lambda one: one.__name__)
def test_a_folder_that_was_made_to_do_harm_is_refused(
    place: tuple[Path, Path], trick: Callable[[Path, Path], None], kind: str
) -> None:
    folder, secret = place
    inspect_bundle(folder, kind=kind)  # without the trick it is fine
    trick(folder, secret)
    with pytest.raises((BundleError, InputError)) as caught:
        inspect_bundle(folder, kind=kind)
    assert caught.value.hint
    assert "PRIVATE" not in str(caught.value)


def test_links_that_stay_inside_are_files(place: tuple[Path, Path]) -> None:
    folder, _ = place
    (folder / "again.gguf").symlink_to("model.gguf")
    (folder / "round").symlink_to(".")
    found = inspect_bundle(folder, kind="files")
    assert {one.name for one in found.files} == {
        *("again.gguf", "model.gguf", "model.bin", "model.pte")
    }


def test_a_folder_without_an_end_is_walked_once(place: tuple[Path, Path]) -> None:
    folder, _ = place
    deep = folder
    for number in range(200):
        deep = deep / str(number)
    deep.mkdir(parents=True)
    (deep / "bottom").write_text("x")
    (deep / "top").symlink_to(folder)
    assert sys.getrecursionlimit() > 0
    names = {one.name for one in inspect_bundle(folder, kind="files").files}
    assert sum(name.endswith("/bottom") for name in names) == 1


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    tar = tmp_path / "bundle.tar"
    tar.write_bytes(bytes(10240))
    for kind in ("genie", *KINDS):
        with pytest.raises(FleetError):
            inspect_bundle(tar, kind=kind)
