"""`fleet get` from real boards: verified, resumed, and nothing outside of the folder."""

from __future__ import annotations

import os
import random
import shlex
from pathlib import Path

import pytest

from fleet.engine.everyday.get import Fetching, fetch_everywhere
from fleet.engine.everyday.landing import Landing, Listing, Wanted
from fleet.model.errors import DeviceError
from tests.chaos import Chaos, Fault
from tests.transport.sshd import running

from .desk import Desk


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "there" / "logs"
    (root / "a b").mkdir(parents=True)
    (root / "a b" / " x ").write_text("blanks")
    (root / "empty").write_text("")
    (root / "big").write_bytes(random.Random(1).randbytes(300_000))
    (root / "secret").symlink_to("/etc/passwd")
    (root / "two\nlines").write_text("x")
    (root / "bad\udcff\u202egnp").write_text("no UTF-8, and turned around")
    os.mkfifo(root / "pipe")
    return root


def content(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def test_a_folder_of_two_boards_goes_to_a_folder_each(
    desk: Desk, tree: Path, tmp_path: Path
) -> None:
    done = desk.fleet("ann", "get", str(tree), str(tmp_path / "got"))
    assert done.returncode == 0, done.stderr
    found = content(tmp_path / "got")
    names = ("a b/ x ", "empty", "big", "two\nlines", "bad\udcff\u202egnp")
    assert set(found) == {f"evk-{number}/logs/{name}" for number in (1, 2) for name in names}
    assert found["evk-1/logs/big"] == (tree / "big").read_bytes()
    assert (
        "evk-1: warning: secret is a symbolic link, and fleet does not follow links" in done.stderr
    )
    assert "pipe is not a regular file" in done.stderr


def test_a_file_goes_on_where_it_stopped_and_a_wrong_part_is_started_anew(
    desk: Desk, tree: Path, tmp_path: Path
) -> None:
    got, big = tmp_path / "got", (tree / "big").read_bytes()
    argv = ("get", "-l", "evk-1", str(tree / "big"), str(got))
    assert desk.fleet("ann", *argv).returncode == 0
    assert content(got) == {"big": big}
    for begun in (big[:200_000], b"wrong" * 40_000, big + b"longer"):
        (got / "big").unlink()
        Wanted(b"big", len(big), got).part.write_bytes(begun)
        done = desk.fleet("ann", *argv)
        assert done.returncode == 0, done.stderr
        assert content(got) == {"big": big}


def test_what_is_not_there_is_said(desk: Desk, tmp_path: Path) -> None:
    done = desk.fleet("ann", "get", "-l", "evk-1", "/no/such", str(tmp_path / "got"))
    assert done.returncode == 1
    assert "/no/such does not exist on the device" in done.stderr


def test_a_folder_of_links_only_is_not_ok(desk: Desk, tmp_path: Path) -> None:
    release, got = tmp_path / "release", tmp_path / "got"
    release.mkdir()
    (tmp_path / "model.bin").write_bytes(b"weights")
    (release / "model.bin").symlink_to(tmp_path / "model.bin")
    done = desk.fleet("ann", "get", "-l", "evk-1", str(release), str(got))
    assert done.returncode == 1, done.stderr
    assert "fleet copied nothing" in done.stderr
    (hint,) = [line for line in done.stderr.splitlines() if line.lstrip().startswith("try:")]
    typed = hint.partition("try: ")[2].partition(" (")[0]
    assert typed.startswith(f"fleet get {release}/model.bin")
    done = desk.fleet("ann", *shlex.split(typed)[1:])
    assert (done.returncode, content(got)) == (0, {"model.bin": b"weights"})


def test_nothing_is_put_behind_a_link_of_this_computer(
    desk: Desk, tree: Path, tmp_path: Path
) -> None:
    (tmp_path / "got").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "got" / "logs").symlink_to(tmp_path / "elsewhere")
    done = desk.fleet("ann", "get", "-l", "evk-1", str(tree), str(tmp_path / "got"))
    assert done.returncode == 2, done.stderr
    assert "is a symbolic link, and fleet does not write through symbolic links" in done.stderr
    assert list((tmp_path / "elsewhere").iterdir()) == []


EVIL = (b"../up", b"/etc/passwd", b"a/../../up", b"..", b".", b"a/./b", b"a//b", b"a\0b")


@pytest.mark.parametrize("name", EVIL, ids=repr)
def test_no_name_of_a_device_leads_outside(name: bytes) -> None:
    listing = Listing()
    listing.take(b"folder//\nis 81a4 3 ./%b//\nfound 0//\nend//\n" % name)
    assert listing.whole
    assert not listing.files
    assert list(listing.lost) == [name]


@pytest.mark.parametrize(
    "answer",
    [
        b"file 3 1\nabc\n",
        b"file 9 0\nabcdefghi\n",
        b"file 3 x\nabc\n",
        b"file 3 0\nabc\nfile 1 0\nd\n",
        b"hash 1 0\n",
        b"rubbish\n",
    ],
)
def test_a_file_that_was_not_asked_for_is_refused(answer: bytes, tmp_path: Path) -> None:
    landing = Landing([Wanted(b"a", 3, tmp_path)], lambda _: None)
    with pytest.raises(DeviceError):
        landing.take(answer)
    landing.close()
    assert not (tmp_path / "a").exists()


def test_a_file_without_its_hash_is_no_file(tmp_path: Path) -> None:
    item = Wanted(b"a", 3, tmp_path)
    landing = Landing([item], lambda _: None)
    landing.take(b"file 3 0\nabc\nend\n")
    landing.close()
    assert not landing.whole
    assert not item.here


def test_a_cable_that_is_cut_costs_no_byte_twice(tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(random.Random(2).randbytes(2_000_000))
    with running(tmp_path / "board") as server:
        base = server.host()
        with Chaos(server.port, [Fault(cut_back=1_000_000)]) as cable:
            host = cable.through(base, tmp_path)
            job = Fetching(str(big), tmp_path / "got")
            (done,) = fetch_everywhere(job, [host], lambda _: None, parallel=1)
            assert cable.cuts == 1
    assert done.fine, done.error
    assert content(tmp_path / "got") == {"big": big.read_bytes()}
