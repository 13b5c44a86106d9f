"""From any state of the board: what the plan says is what is done, and then nothing is left.

And the releases that may be needed again are there whatever came before: random deploys,
rollbacks and prunes against a model of ten lines.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.engine.deploy.switch import apply_plan
from fleet.engine.session import Session
from fleet.engine.states import ask_state, facts_of
from fleet.lab import Lab
from fleet.model.errors import TransferError
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest
from fleet.model.plan import DevicePlan
from fleet.ops.release import actions_for
from tests.ops.board import Board, manifest

from .app import app_of, deploy, live, small

CONTENTS = {"lib/a": b"a" * 100_000, "lib/b c": b"b", "bin/t": b"t" * 10, "d/e/f": b"f" * 3000}


def stand_in(path: Path, other: Path | str) -> None:
    """Something of nobody's in the place of a link of ours."""
    if path.parent.is_dir():
        path.unlink(missing_ok=True)
        if isinstance(other, Path):
            path.symlink_to(other)
        else:
            path.write_text(other)


def half(blob: Path) -> None:
    if blob.exists():
        blob.unlink()
        blob.write_bytes(b"")


def begun(blob: Path, size: int) -> None:
    if blob.parent.is_dir() and not blob.exists():
        blob.with_name(f"{blob.name}.part").write_bytes(b"a" * size)


def disturb(base: Path, app: Manifest, dice: random.Random) -> str:
    """One thing that may have happened to a board since."""
    store, release = base / "store", base / "releases" / "app" / app.id
    blob = store / dice.choice(list(app.blobs))
    link = release / dice.choice(app.files).name
    what: dict[str, Callable[[], object]] = {
        "blob gone": lambda: blob.unlink(missing_ok=True),
        "blob cut": lambda: half(blob),
        "link gone": lambda: link.unlink(missing_ok=True),
        "link elsewhere": lambda: stand_in(link, Path("/etc/hostname")),
        "file for link": lambda: stand_in(link, "mine"),
        "seal gone": lambda: (base / "meta" / "app" / app.id / ".installed").unlink(
            missing_ok=True
        ),
        "release gone": lambda: shutil.rmtree(release, ignore_errors=True),
        "meta gone": lambda: shutil.rmtree(base / "meta", ignore_errors=True),
        "part": lambda: begun(blob, dice.randrange(200)),
        "current gone": lambda: (base / "current" / "app").unlink(missing_ok=True),
        "store gone": lambda: shutil.rmtree(store, ignore_errors=True),
        "history gone": lambda: (base / "history" / "app").unlink(missing_ok=True),
    }
    name = dice.choice(list(what))
    what[name]()
    return name


@pytest.mark.parametrize("rounds", [7, pytest.param(300, marks=pytest.mark.slow)], ids=["7", "300"])
def test_plan_and_apply_agree_from_random_states(
    host: Host, base: Path, tmp_path: Path, rounds: int
) -> None:
    """After one apply, or two where a damaged part had to be found out, nothing is planned."""
    dice = random.Random(rounds)
    app = app_of(tmp_path / "src", CONTENTS)
    session = Session(host, lambda _: None)
    session.open()
    facts = facts_of(session)
    for turn in range(rounds):
        did = []
        if turn:
            did = [disturb(base, app, dice) for _ in range(dice.randrange(1, 4))]
        tries = 0
        while True:
            actions = actions_for(app, ask_state(session, facts, app), 2)
            planned = sum(action.bytes for action in actions)
            if not actions:
                break
            before = session.payload_bytes
            plan = DevicePlan(host, facts, "t", app, actions=actions)
            # Only a part that was not ours may end an apply: it is found out by its hash.
            with contextlib.suppress(*([TransferError] if "part" in did else [])):
                apply_plan(session, plan, f"r{turn}")
            tries += 1
            assert tries <= (2 if "part" in did else 1), (turn, did)
            assert session.payload_bytes - before == planned, (turn, did)
        assert live(base, app) is app, (turn, did)
    session.close()


@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(4, 100), marks=pytest.mark.slow)], ids=["4", "100"]
)
def test_what_may_be_needed_again_is_never_removed(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        dice = random.Random(seed)
        board = Board(tmp_path / str(seed), "dash")
        (tmp_path / str(seed)).mkdir()
        apps = [
            manifest(tmp_path / f"{seed}-{n}", {"f": b"%d" % n, "same": b"s", f"n{n % 2}": b"2"})
            for n in range(5)
        ]
        past: list[Manifest] = []  # the model: what was live, newest last
        for _ in range(14):
            match dice.choice(["deploy", "deploy", "rollback", "prune"]):
                case "deploy":
                    app = dice.choice(apps)
                    board.deploy(app)
                    past.append(app)
                case "rollback" if len({one.id for one in past}) > 1:
                    previous = next(one for one in reversed(past) if one is not past[-1])
                    assert board.state(past[-1]).previous == previous.id
                    assert board.switch(previous).returncode == 0, "it was removed"
                    past.append(previous)
                case "prune":
                    board.run("prune", str(board.base), "app", str(dice.randrange(4)))
            needed = [past[-1]] if past else []
            needed += [one for one in reversed(past) if one is not past[-1]][:1]
            for one in needed:
                state = board.state(one)
                assert state.have == set(one.blobs), (seed, one.id)
                assert not state.unlinked, (seed, one.id)
        board.run("prune", str(board.base), "app", "2")
        linked = {sha for one in needed for sha in one.blobs}
        assert board.store() == linked, "what nobody links to is gone, the rest is there"


@pytest.mark.parametrize("python", [True, False], ids=["python", "sh"])
def test_a_part_that_has_its_mode_and_no_name(
    lab: Lab, board: Host, tmp_path: Path, python: bool
) -> None:
    """What a power cut between the two leaves; the user of the board may not write to it."""
    if not python:
        lab.exec("lab001", ["sh", "-c", "chmod 700 /usr/bin/python3*"])
    app = small(tmp_path / "src", "p")
    file = max(app.files, key=lambda file: file.size)
    store, begun = f"/home/{board.user}/fleet/store", b"p" * 100_000
    script = f'mkdir -p {store} && head -c {len(begun)} | tr "\\0" p > {store}/{file.sha256}.part'
    made = f"cat /dev/zero | ({script}) && chmod 444 {store}/{file.sha256}.part"
    assert lab.exec("lab001", ["su", str(board.user), "-c", made]).returncode == 0
    session = deploy(board, app)
    assert session.payload_bytes < sum(file.size for file in app.files), "begun is not sent again"
    found = lab.exec("lab001", ["sh", "-c", f"cat {store}/{file.sha256} | wc -c"])
    assert int(found.stdout) == file.size
