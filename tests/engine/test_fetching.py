"""`fleet get` of folders whose files change, vanish or cannot be read, and of hostile devices."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.config.inventory import load_inventory
from fleet.engine.everyday import get as fetching
from fleet.engine.everyday import landing
from fleet.engine.everyday.get import Fetching, fetch_everywhere
from fleet.engine.pool import DeviceResult
from fleet.lab import Lab, LabPhones
from fleet.lab.namespace import can_unshare
from fleet.model.errors import DeviceError, TransferError, WorkstationError
from fleet.model.inventory import Host
from tests.chaos import Chaos, Fault

from .shifting import AsRoot, Tree, fetch, judge

COUNTS = [6, pytest.param(200, marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=["ssh", "adb"])
def device(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Host, AsRoot, Lab]]:
    """A board behind sshd, or a phone behind a real adbd, whose login is not root."""
    if why := can_unshare():
        pytest.skip(f"no lab boards with users of their own here: {why}")
    phones = int(request.param == "adb")
    with Lab.up(
        tmp_path_factory.mktemp("lab"),
        count=1 - phones, phones=LabPhones(phones, kind="phone"), kind="namespace", base_port=0,
    ) as lab:  # fmt: skip
        (host,) = load_inventory(lab.inventory).hosts
        if not phones:
            known = lab.board(host.name)
            host = Host(
                name=host.name,
                address="127.0.0.1",
                port=known.port,
                user=known.user,
                identity_files=(lab.folder.identity_file,),
                known_hosts=lab.folder.known_hosts,
            )

        def as_root(text: str) -> None:
            lab.exec(host.name, ["sh", "-c", text])

        yield host, as_root, lab


def folder_of(host: Host) -> str:
    return "/data/local/tmp/shifting" if host.transport == "adb" else "/tmp/shifting"


@pytest.mark.parametrize("count", COUNTS)
def test_every_file_arrives_whole_or_is_named(
    device: tuple[Host, AsRoot, Lab], tmp_path: Path, count: int
) -> None:
    host, as_root, _ = device
    for seed in range(count):
        tree = Tree(seed, folder_of(host))
        tree.lay(host, as_root)
        done, code = fetch(tree, host, as_root, tmp_path / str(seed))
        assert code in {0, 1}, done.error
        judge(tree, done, code, tmp_path / str(seed))


@pytest.mark.parametrize("count", COUNTS)
def test_so_it_is_where_the_link_is_cut_at_any_byte(
    device: tuple[Host, AsRoot, Lab], tmp_path: Path, count: int
) -> None:
    host, as_root, lab = device
    port = lab.phones[0].port if host.transport == "adb" else host.port
    assert port
    cuts = 0
    for seed in range(count):
        tree, target = Tree(seed, folder_of(host)), tmp_path / str(seed)
        tree.lay(host, as_root)
        dice, size = random.Random(seed), sum(map(len, tree.first.values()))
        script = [
            Fault(cut_back=dice.randrange(1, size + 30_000)) for _ in range(dice.randrange(1, 5))
        ]
        with Chaos(port, script) as cable:
            if host.transport == "adb":
                through = replace(host, serial=f"127.0.0.1:{cable.port}", connect_timeout=20.0)
            else:
                through = cable.through(host, tmp_path)
            done, code = fetch(tree, through, as_root, target)
            cuts += cable.cuts
            if code != 3 or done.value is not None:
                judge(tree, done, code, target)
            cable.heal()
    assert cuts


# A program of a hostile device in the place of its own.
_ENDLESS = "#!/bin/sh\nexec awk 'BEGIN { for (n = 0; ; n++) print \"is 81a4 3 ./%s//\" }'\n"


@pytest.fixture
def hostile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], DeviceResult[Any]]:
    """`fleet get` from this machine, where one program is another."""

    def get(program: str, text: str) -> DeviceResult[Any]:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / program).write_text(text)
        (tmp_path / "bin" / program).chmod(0o755)
        (tmp_path / "there").mkdir(exist_ok=True)
        (tmp_path / "there" / "file").write_text("abc")
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        job = Fetching(str(tmp_path / "there"), tmp_path / "got")
        (done,) = fetch_everywhere(
            job, [Host("here", transport="local")], lambda _: None, parallel=1
        )
        return done

    return get


@pytest.mark.parametrize(("name", "words"), [('" n "', "more than 1000 files"), ("x", "64.0 kB")])
def test_a_list_without_end_is_ended(
    hostile: Callable[[str, str], DeviceResult[Any]],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    words: str,
) -> None:
    monkeypatch.setattr(landing, "MOST_FILES", 1000)
    monkeypatch.setattr(fetching, "LIST_BYTES", 64_000)
    done = hostile("find", _ENDLESS % name)
    assert isinstance(done.error, DeviceError)
    assert words in done.error.message


def test_what_cannot_fit_is_refused_before_the_first_byte(
    hostile: Callable[[str, str], DeviceResult[Any]], tmp_path: Path
) -> None:
    done = hostile("stat", "#!/bin/sh\necho 'is 81a4 99999999999999999999 ./file//'\n")
    assert isinstance(done.error, WorkstationError)
    assert "too little free space: needed 99999999999.9 GB" in done.error.message or (
        "too little free space: needed 100000000000.0 GB" in done.error.message
    )
    assert not (tmp_path / "got").exists()


@pytest.mark.parametrize(("mishap", "came"), [(": >", True), ("echo more >>", False)])
def test_a_file_that_changes_under_the_reader_costs_its_followers_nothing(
    hostile: Callable[[str, str], DeviceResult[Any]], tmp_path: Path, mishap: str, came: bool
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    for number in range(10):
        (there / f"r{number}").write_text(f"result {number}")
    (there / "a.log").write_bytes(bytes(100_000))
    real = shutil.which("dd")
    done = hostile(
        "dd",
        f"#!/bin/sh\ncase $(readlink /proc/$$/fd/0) in *a.log) {mishap} {there}/a.log ;; esac\n"
        f'exec {real} "$@"\n',
    )
    got = {one.name: one.read_bytes() for one in (tmp_path / "got" / "there").iterdir()}
    for number in range(10):
        assert got.pop(f"r{number}") == b"result %d" % number
    assert got == ({"a.log": b"", "file": b"abc"} if came else {"file": b"abc"})
    assert done.outcome == ("ok" if came else "failed")
    missing = {} if came else {"a.log": landing.CHANGED}
    assert done.answer.missing == missing
    if not came:
        assert isinstance(done.error, TransferError)
        assert done.error.message.startswith(
            f"1 of 12 files did not arrive: a.log {landing.CHANGED}"
        )
