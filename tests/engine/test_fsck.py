"""`fleet status --verify` over a connection: what is found, put aside, sent again, left alone."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from fleet.engine.deploy import fsck as engine_fsck
from fleet.engine.deploy import push as pushing
from fleet.engine.deploy.fsck import Fsck, FsckOptions
from fleet.engine.deploy.push import Push, PushOptions
from fleet.engine.pool import DeviceResult
from fleet.engine.session import Session
from fleet.engine.states import facts_of
from fleet.engine.status import status
from fleet.engine.transfer.upload import Upload
from fleet.model.events import Event, Progress
from fleet.model.facts import Facts
from fleet.model.inventory import Host
from fleet.model.plain import to_plain

CONTENT = {f"lib/deep {n}/é.bin": bytes([n]) * (n + 1) for n in range(6)} | {"model": b"m" * 9000}


class Boards:
    """Base folders on this machine, each with two releases of `app`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.source = root / "source"
        self.events: list[Event] = []

    def host(self, name: str) -> Host:
        return Host(name, "local", base_dir=str(self.root / name))

    def deploy(self, *names: str) -> None:
        for version in (b"old", b"new"):
            for name, data in {**CONTENT, "version": version}.items():
                path = self.source / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            hosts = [self.host(name) for name in names]
            for result in Push(
                "app", [self.source], hosts, self.events.append, PushOptions(parallel=1)
            ).push():
                assert result.outcome == "changed", result.error

    def fsck(self, *names: str, **options: Any) -> list[DeviceResult[Any]]:
        hosts = [self.host(name) for name in names]
        return Fsck(hosts, self.events.append, FsckOptions(parallel=1, **options)).run()

    def tree(self, name: str) -> dict[str, bytes | str]:
        """Links by where they lead, files by content; what of fleet's own changes is left out."""
        base = self.root / name
        found: dict[str, bytes | str] = {}
        for path in base.rglob("*"):
            inside = str(path.relative_to(base))
            if inside.startswith(("quarantine", "fsck")) or path.name in {".seal", ".installed"}:
                continue
            if path.is_symlink():
                found[inside] = str(path.readlink())
            elif path.is_file():
                found[inside] = path.read_bytes()
        return found


def found(result: DeviceResult[Any]) -> list[dict[str, Any]]:
    damages: list[dict[str, Any]] = to_plain(result.answer)["damages"]
    return damages


@pytest.fixture(params=["python", "sh"])
def boards(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Boards:
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FLEET_LEASE_DIR", str(tmp_path))  # this machine is the board of others, too

    def without_python(session: Session, *, short: bool = False) -> Facts:
        facts = facts_of(session, short=short)
        return structs.replace(facts, tools=replace(facts.tools, python3=None))

    if request.param == "sh":
        monkeypatch.setattr(pushing, "facts_of", without_python)
        monkeypatch.setattr(engine_fsck, "facts_of", without_python)
    return Boards(tmp_path)


def blobs(base: Path) -> list[Path]:
    return sorted(path for path in (base / "store").iterdir() if len(path.name) == 64)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


def test_a_device_without_a_base_folder_stays_without_one(boards: Boards) -> None:
    (result,) = boards.fsck("never")
    assert (result.outcome, found(result)) == ("ok", []), result.error
    assert not (boards.root / "never").exists()


def test_nothing_wrong_and_status_says_when(boards: Boards) -> None:
    boards.deploy("one")
    before = boards.tree("one")
    (result,) = boards.fsck("one")
    assert (result.outcome, found(result)) == ("ok", []), result.error
    assert any(isinstance(event, Progress) and event.step == "fsck" for event in boards.events)
    (seen,) = status([boards.host("one")], boards.events.append, parallel=1)
    assert "fsck passed 20" in seen.text
    assert boards.tree("one") == before
    assert not (boards.root / "one" / "quarantine").exists()


def test_a_damaged_blob_is_put_aside_and_a_push_brings_it_again(boards: Boards) -> None:
    boards.deploy("one")
    before = boards.tree("one")
    blob = (boards.root / "one/current/app/model").resolve()
    flip(blob)
    (result,) = boards.fsck("one")
    assert result.outcome == "failed"
    assert {(item["kind"], item["file"]) for item in found(result)} == {("blob", "model")}
    assert len(found(result)) == 2  # both releases have it
    assert all(item["cure"].startswith("fleet status --verify --repair") for item in found(result))
    assert [path.name[:64] for path in (boards.root / "one/quarantine").iterdir()] == [blob.name]
    assert not (boards.root / "one/fsck").exists()
    Push(
        "app", [boards.source], [boards.host("one")], boards.events.append, PushOptions(parallel=1)
    ).push()
    assert boards.tree("one") == before


def harm(base: Path, rng: random.Random) -> None:
    """One to three of all kinds, on files that the workstation has."""
    keep = {(base / "current/app/version").resolve()}
    for _ in range(rng.randrange(1, 4)):
        way = rng.randrange(6)
        some = [path for path in blobs(base) if path not in keep]
        links = [path for path in (base / "releases").rglob("*") if path.is_symlink()]
        if way == 0:
            flip(rng.choice(some))
        elif way == 1:
            rng.choice(some).unlink()
        elif way == 2 and len(some) > 1:
            one, other = rng.sample(some, 2)
            one.rename(base / "aside")
            other.rename(one)
            (base / "aside").rename(other)
        elif way == 3:
            rng.choice(links).unlink()
        elif way == 4:
            link = rng.choice(links)
            link.unlink()
            link.symlink_to(rng.choice(some))
        else:
            (base / "history/app").unlink(missing_ok=True)


@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(4, 50), marks=pytest.mark.slow)], ids=["few", "fifty"]
)
def test_damaged_stores_are_repaired_and_no_other_is_changed(boards: Boards, seeds: range) -> None:
    """`twin` has everything intact: what this workstation lacks comes from there."""
    boards.deploy("one", "twin")
    whole, twin = boards.tree("one"), boards.tree("twin")
    shutil.copytree(boards.root / "one", boards.root / "whole", symlinks=True)
    for seed in seeds:
        harm(boards.root / "one", random.Random(seed))
        outcome = "ok" if boards.tree("one") == whole else "changed"  # the same bit flipped twice
        result, other = boards.fsck("one", "twin", repair=True)
        assert result.outcome == outcome, (seed, result.error, found(result))
        assert all(item["repaired"] for item in found(result))
        assert (other.outcome, boards.tree("twin")) == ("ok", twin)
        after = boards.tree("one")
        assert {name: after.get(name) for name in whole if name != "history/app"} == {
            name: data for name, data in whole.items() if name != "history/app"
        }, seed
        (again,) = boards.fsck("one")
        assert (again.outcome, found(again)) == ("ok", [])
        shutil.rmtree(boards.root / "one")
        shutil.copytree(boards.root / "whole", boards.root / "one", symlinks=True)


def test_a_source_that_is_given_is_looked_through(boards: Boards) -> None:
    boards.deploy("one")
    before = boards.tree("one")
    (boards.root / "one/current/app/model").resolve().unlink()
    (result,) = boards.fsck("one", repair=True)
    assert result.outcome == "failed"
    assert {(item["kind"], item["file"]) for item in found(result)} == {("missing", "model")}
    (result,) = boards.fsck("one", repair=True, sources=[boards.source])
    assert result.outcome == "changed", (result.error, found(result))
    assert boards.tree("one") == before


def test_a_manifest_comes_from_another_board(boards: Boards) -> None:
    boards.deploy("one", "twin")
    before = boards.tree("one")
    (next((boards.root / "one/meta/app").iterdir()) / "manifest.json").write_text("{}")
    result, _ = boards.fsck("one", "twin", repair=True)
    assert result.outcome == "changed", (result.error, found(result))
    assert boards.tree("one") == before


def test_a_repair_that_is_killed_leaves_old_or_new(
    boards: Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After what lies was put aside, before anything comes: the next repair goes on from there."""
    boards.deploy("one", "twin")
    before = boards.tree("one")
    blob = (boards.root / "one/current/app/model").resolve()
    flip(blob)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Upload, "send", killed)
        with pytest.raises(KeyboardInterrupt):
            boards.fsck("one", "twin", repair=True)
    left = boards.tree("one")
    assert {name: data for name, data in before.items() if left.get(name) != data} == {
        f"store/{blob.name}": before[f"store/{blob.name}"]
    }
    result, _ = boards.fsck("one", "twin", repair=True)
    assert result.outcome == "changed", result.error
    assert boards.tree("one") == before
