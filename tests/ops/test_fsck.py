"""Damaged stores, by seed: what the device's programs say of them, and what is made of it."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.device.call import on_windows
from fleet.model.facts import Facts, Windows
from fleet.model.manifest import Manifest
from fleet.model.plain import to_plain
from fleet.ops import fsck
from fleet.ops.fsck import Contents, Damage
from tests import needs
from tests.transport.windows.board import board_of

from .board import Board, manifest

KINDS = ("dash", "bash", "busybox", "mksh", "python", "windows")
SEEDS = 50
ODD = "odd 'name' $x é \\n %s.bin"


def ask(
    board: Board,
    what: str,
    *,
    rate: float | None = None,
    word: str = "r1",
    shas: list[str] | None = None,
) -> Contents:
    question = fsck.ask(board.facts, what, rate=rate, word=word, shas=shas)
    done = board.do(question.command, b"".join(question.stdin))
    assert (done.returncode, done.stderr) == (0, b""), done.stderr
    found = Contents()
    found.take(done.stdout)
    found.check("board")
    return found


def damages(board: Board) -> list[Damage]:
    return fsck.damages(ask(board, "look"), str(board.base), hashed=True)


@pytest.fixture(params=KINDS)
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Board:
    return board_of(request.param, tmp_path)


def apps(root: Path, rng: random.Random) -> list[Manifest]:
    """Two releases of a name, which share files; more files than are asked about at once."""
    shared = {f"lib/deep/{n}": rng.randbytes(rng.randrange(1, 200)) for n in range(20)}
    shared |= {ODD: rng.randbytes(50), "large": rng.randbytes(10_000_001)}
    old = manifest(root / "old", {**shared, "model": b"old", "gone": rng.randbytes(9)})
    return [old, manifest(root / "new", {**shared, "model": b"new"})]


def test_an_undamaged_store_has_nothing_wrong(board: Board, tmp_path: Path) -> None:
    for app in apps(tmp_path / "src", random.Random(1)):
        board.deploy(app)
    found = ask(board, "look")
    assert fsck.damages(found, str(board.base), hashed=True) == []
    assert found.hashes == {sha: sha for sha in board.store()}
    assert {label: len(release.links) for label, release in found.releases.items()} == {
        release.label: len(release.manifest.files)
        for release in found.releases.values()
        if release.manifest
    }
    assert len(found.releases) == 2
    assert ask(board, "list").hashes == {}


def test_a_watcher_that_is_ended_at_once_has_ended(tmp_path: Path) -> None:
    """mksh loses a TERM that comes right after the fork: a phone's fsck hung for ever."""
    board = Board(tmp_path, "mksh")
    store = board.base / "store"
    store.mkdir(parents=True)
    (store / ("0" * 64)).write_bytes(b"")
    asked = fsck.ask(board.facts, "aside", word="r1", shas=["0" * 64])
    for _ in range(150):
        done = board.do(asked.command, b"".join(asked.stdin))
        assert done.returncode == 0, done.stderr
        (moved,) = (board.base / "quarantine").iterdir()
        moved.rename(store / ("0" * 64))


def test_no_store_at_all(board: Board) -> None:
    board.base.mkdir()
    assert damages(board) == []


def flip(board: Board, app: Manifest, rng: random.Random) -> set[tuple[str, str]]:
    sha = rng.choice(sorted(app.blobs))
    blob = board.base / "store" / sha
    data = bytearray(blob.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    blob.chmod(0o644)
    blob.write_bytes(data)
    return {("blob", sha)}


def swap(board: Board, app: Manifest, rng: random.Random) -> set[tuple[str, str]]:
    one, other = (board.base / "store" / sha for sha in rng.sample(sorted(app.blobs), 2))
    aside = board.base / "aside"
    one.rename(aside)
    other.rename(one)
    aside.rename(other)
    return {("blob", one.name), ("blob", other.name)}


def lose(board: Board, app: Manifest, rng: random.Random) -> set[tuple[str, str]]:
    sha = rng.choice(sorted(app.blobs))
    (board.base / "store" / sha).unlink()
    return {("missing", sha)}


def unlink(board: Board, app: Manifest, rng: random.Random) -> set[tuple[str, str]]:
    item = rng.choice(app.files)
    (board.base / "releases" / "app" / app.id / item.name).unlink()
    return {("link", item.sha256)}


def mislead(board: Board, app: Manifest, rng: random.Random) -> set[tuple[str, str]]:
    item, other = rng.sample(app.files, 2)
    path = board.base / "releases" / "app" / app.id / item.name
    path.unlink()
    if rng.random() < 0.5:
        path.symlink_to(board.base / "store" / other.sha256)
    else:
        path.write_bytes(b"a file of its own")
    return {("link", item.sha256)}


WAYS: tuple[Callable[[Board, Manifest, random.Random], set[tuple[str, str]]], ...] = (
    flip, swap, lose, unlink, mislead,
)  # fmt: skip


@pytest.mark.parametrize("kind", ["dash", "python"])
def test_fifty_damaged_stores_are_all_found(tmp_path: Path, kind: str) -> None:
    """Exactly what was done to each, in the releases that it hurts, and nothing else."""
    board = Board(tmp_path, kind)
    old, new = small_apps(tmp_path / "src", random.Random(0))
    for app in (old, new):
        board.deploy(app)
    shutil.copytree(board.base, tmp_path / "whole", symlinks=True)
    for seed in range(SEEDS):
        rng = random.Random(seed)
        hurt = rng.choice([old, new])
        done = rng.choice(WAYS)(board, hurt, rng)
        found = damages(board)
        assert {(damage.kind, damage.sha256) for damage in found} == done, seed
        for kind_of, sha in done:
            labels = {f"app/{app.id}" for app in (old, new) if sha in app.blobs}
            labels = {f"app/{hurt.id}"} if kind_of == "link" else labels
            assert {damage.release for damage in found if damage.sha256 == sha} == labels, seed
        shutil.rmtree(board.base)
        shutil.copytree(tmp_path / "whole", board.base, symlinks=True)


def small_apps(root: Path, rng: random.Random) -> list[Manifest]:
    shared = {f"lib/{n}": rng.randbytes(rng.randrange(1, 200)) for n in range(5)} | {ODD: b"odd"}
    old = manifest(root / "old", {**shared, "model": b"old"})
    return [old, manifest(root / "new", {**shared, "model": b"new"})]


def own(rel: Path) -> Path:
    return rel.parents[2] / "meta" / rel.parent.name / rel.name


def test_what_lies_is_put_aside_and_nothing_is_deleted(board: Board, tmp_path: Path) -> None:
    (app,) = [manifest(tmp_path / "src", {"a": b"a", "b": b"b", "c": b"c"})]
    board.deploy(app)
    bad, good, gone = sorted(app.blobs)
    (board.base / "store" / bad).chmod(0o644)
    (board.base / "store" / bad).write_bytes(b"x")
    (board.base / "store" / gone).unlink()
    assert ask(board, "aside", shas=[bad, good, gone]).moved == [bad]
    assert board.store() == {good}
    assert (board.base / "quarantine" / f"{bad}-r1").read_bytes() == b"x"
    (board.base / "store" / bad).write_bytes(b"y")
    assert ask(board, "aside", shas=[bad]).moved == [bad]
    kept = {path.read_bytes() for path in (board.base / "quarantine").iterdir()}
    assert kept == {b"x", b"y"}


@pytest.mark.parametrize(
    ("harm", "kind"),
    [
        (lambda rel: (own(rel) / "manifest.json").unlink(), "manifest"),
        (lambda rel: (own(rel) / "manifest.json").write_text("[" * 100_000), "manifest"),
        (
            lambda rel: (own(rel) / "manifest.json").write_text(
                (own(rel) / "manifest.json").read_text().replace('"v": 1', '"v": 2')
            ),
            "manifest",
        ),
        (lambda rel: (own(rel) / ".installed").unlink(), "unmarked"),
        (lambda rel: (rel.parents[2] / "current" / "app").unlink(), "current"),
        (lambda rel: rel.rename(rel.with_name("0" * 16)), "current"),
        (lambda rel: (rel.parents[2] / "history" / "app").unlink(), "history"),
        (lambda rel: (rel.parents[2] / "history" / "app").write_text("0" * 16 + "\n"), "history"),
    ],
)
def test_fleets_own_files_are_looked_at(
    board: Board, tmp_path: Path, harm: Callable[[Path], object], kind: str
) -> None:
    app = manifest(tmp_path / "src", {"a": b"a"})
    board.deploy(app)
    harm(board.base / "releases" / "app" / app.id)
    assert kind in {damage.kind for damage in damages(board)}


def test_a_slow_reading_is_as_whole_as_a_fast_one(board: Board, tmp_path: Path) -> None:
    app = manifest(tmp_path / "src", {"large": bytes(10_000_000), "a": b"a", "b": b"b" * 70_000})
    board.deploy(app)
    found = ask(board, "look", rate=8e6)
    assert found.hashes == {sha: sha for sha in app.blobs}


def test_the_time_of_the_last_pass_is_kept(board: Board, tmp_path: Path) -> None:
    board.deploy(manifest(tmp_path / "src", {"a": b"a"}))
    word = fsck.passed_word("2026-11-23T07:18:50Z", ask(board, "look"))
    ask(board, "passed", word=word)
    ask(board, "passed", word=word)
    said = board.run("status", str(board.base)).stdout.decode().splitlines()
    assert f"fsck {word}" in said
    assert fsck.passed_in(word) == {"passed": "2026-11-23T07:18:50Z", "blobs": 1, "bytes": 1}


@pytest.mark.parametrize("word", ["", "x", "2026-11-23T07:18:50Z", "2026-11-23T07:18:50Z/a/1"])
def test_no_time_is_made_up(word: str) -> None:
    assert fsck.passed_in(word) is None


def test_a_tool_without_names_hashes_one_by_one(tmp_path: Path) -> None:
    needs.tool("openssl")
    board = Board(tmp_path, "dash")
    board.facts = board.without(sha256=("openssl", "dgst", "-sha256"))
    app = manifest(tmp_path / "src", {"a": b"a", "b": b"b"})
    sha256sum: Facts = board.facts
    board.facts = board.without(sha256=("sha256sum",))
    board.deploy(app)
    board.facts = sha256sum
    assert ask(board, "look").hashes == {sha: sha for sha in app.blobs}


def test_on_windows_a_hard_link_is_the_link(tmp_path: Path) -> None:
    """The program of a PC, run here: two names of one file, and a small file for what is live."""
    app = manifest(tmp_path / "src", {"lib/a": b"a", "b": b"b"})
    base = tmp_path / "base"
    rel = base / "releases" / "app" / app.id
    for folder in (base / "store", base / "current", base / "history", rel / "lib"):
        folder.mkdir(parents=True)
    for item in app.files:
        shutil.copy(item.source, base / "store" / item.sha256)
        (rel / item.name).hardlink_to(base / "store" / item.sha256)
    (rel / "manifest.json").write_text(json.dumps(to_plain(app)))
    (rel / ".installed").write_text(app.id)
    (base / "current" / "app").write_text(app.id + "\n")
    (base / "history" / "app").write_text(app.id + "\n")
    facts = Facts(base_dir=str(base), windows=Windows())
    question = fsck.ask(facts, "look", shas=None)
    assert question.command.call is not None
    started = on_windows(question.command.call)

    def look() -> list[Damage]:
        argv = (sys.executable, *started.argv[1:])
        done = subprocess.run(argv, input=started.head, capture_output=True, check=True)
        found = Contents()
        found.take(done.stdout)
        found.check("pc")
        return fsck.damages(found, str(base), hashed=True)

    assert look() == []
    (rel / "b").unlink()
    (rel / "b").write_bytes(b"b")
    assert {(damage.kind, damage.file) for damage in look()} == {("link", "b")}
