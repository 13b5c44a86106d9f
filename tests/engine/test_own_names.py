"""Pushed files named like fleet's own, and in every other hostile way."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from fleet.engine.deploy.push import Push
from fleet.model.errors import InputError
from tests import warm
from tests.ops.hostile import Tree, read, tree, with_folders
from tests.provision.conftest import Bare, bare, labs

from .conftest import Bench

__all__ = ["bare", "labs"]

OWN = ("env.sh", "env.ps1", "manifest.json", ".installed", ".seal", ".files", ".end", ".new-link")
TREES = int(os.environ.get("FLEET_HOSTILE_PUSHES", "4"))


def folder(root: Path, *names: str, content: bytes = b"mine") -> Path:
    return planted(root, dict.fromkeys(names, content))


def planted(root: Path, wanted: Tree) -> Path:
    for name, content in wanted.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def test_names_of_fleets_own_are_brought(bench: Bench) -> None:
    names = [f"{name}{end}" for name in (*OWN, ".seal-mine", "sub/.seal") for end in ("", ".new")]
    source = folder(bench.base.parent / "data", *names)
    (done,) = Push("data", [source], [bench.host], bench.events.append).push()
    assert done.outcome == "changed", done.error
    assert read(bench.base / "current" / "data") == read(source)
    (again,) = Push("data", [source], [bench.host], bench.events.append).push()
    assert (again.outcome, again.bytes_sent) == ("unchanged", 0)


def test_what_no_list_can_hold_is_refused_before_a_byte(bench: Bench) -> None:
    source = folder(bench.base.parent / "data", "good", "line\nbreak")
    (done,) = Push("data", [source], [bench.host], bench.events.append).push()
    assert isinstance(done.error, InputError)
    assert "cannot be the name of a file in a release" in done.error.message
    assert done.bytes_sent == 0
    assert not bench.base.exists()


def there(board: Bare, name: str) -> Tree:
    """A release of the board: its links lead through the root of the board."""
    top = Path(f"/proc/{board.lab.board('lab001').pid}/root")
    (live,) = (*top.glob(f"*/fleet/current/{name}"), *top.glob(f"*/*/fleet/current/{name}"))
    return {
        path: text if path[-1] == "/" else (top / text.decode().lstrip("/")).read_bytes()
        for path, text in read(live).items()
    }


@pytest.mark.parametrize("profile", ["bare-qcom-linux", "bare-evk"], ids=["root", "ubuntu"])
def test_pushed_trees_of_hostile_names_are_there_as_they_are_here(
    bare: Callable[..., Bare], tmp_path: Path, profile: str
) -> None:
    """By that login; FLEET_HOSTILE_PUSHES=50 for more of them."""
    board, rng = bare(profile), Random(21)

    def push(name: str, source: Path) -> str:
        (done,) = Push(name, [source], [board.host], board.events.append).push()
        assert done.error is None
        return str(done.outcome)

    others = folder(tmp_path / "before", *OWN)
    assert push("other", others) == "changed"
    for number in range(TREES):
        wanted = tree(rng)
        source = planted(tmp_path / f"tree{number}", wanted)
        assert push("data", source) == "changed", number
        assert there(board, "data") == with_folders(wanted), number
        assert push("data", source) == "unchanged", number
        assert there(board, "other") == read(others), number


def test_no_folder_can_break_a_release_of_others_where_the_login_is_root(
    bare: Callable[..., Bare], tmp_path: Path
) -> None:
    """All of the board can be written there, blobs too."""
    board = bare("bare-qcom-linux")
    victim = folder(tmp_path / "vic", "data.bin", content=b"public" * 1000)
    attack = folder(tmp_path / "att", "env.sh.new", ".installed.new", content=b"public" * 1000)
    named = folder(tmp_path / "named", "env.sh", "manifest.json")
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(
        f"all:\n  hosts:\n    lab001: {{host: 127.0.0.1, port: {board.host.port}, user: root,\n"
        f"      identity_file: {board.lab.folder.identity_file},\n"
        f"      known_hosts: {board.lab.folder.known_hosts}}}\n"
    )

    def push(source: Path, name: str) -> str:
        env = {**os.environ, "FLEET_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}
        done = warm.fleet("push", source, "--name", name, "-i", inventory, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        return board.root(f"find / -xdev -path '*/current/{name}' 2>/dev/null").strip()

    def holds(where: str, name: str, content: bytes) -> bool:
        said = board.root(f"sha256sum < {where}/{name}").split()[0]
        return said == hashlib.sha256(content).hexdigest()

    where = push(victim, "victim")
    for source, name in ((attack, "att"), (named, "named")):
        there = push(source, name)
        for path in source.iterdir():
            assert holds(there, path.name, path.read_bytes())
    assert holds(where, "data.bin", b"public" * 1000)
