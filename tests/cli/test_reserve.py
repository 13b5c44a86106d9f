"""`fleet reserve`, `--list` and `--end`, as people of two workstations type them."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from fleet.cli.main import app

from .desk import Desk


def test_reserve_see_respect_and_give_back(desk: Desk) -> None:
    done = desk.fleet("ann@desk", "reserve", "evk-1", "--for", "2h", "--reason", "camera; $(tests)")
    assert done.returncode == 0, done.stderr
    assert "reserved for 2 h" in done.stdout

    first, second = desk.json("bob@desk", "reserve", "--list")
    (holder,) = first["holders"]
    assert (holder["owner"], holder["reason"]) == ("ann@desk", "camera; $(tests)")
    assert 7100 < holder["left"] <= 7201
    assert "token" not in holder
    assert (first["round_trips"], second["holders"]) == (1, [])
    assert [one["host"] for one in desk.json("bob@desk", "reserve", "--list", "evk-2")] == ["evk-2"]

    seen = desk.fleet("bob@desk", "status")
    assert seen.returncode == 0, seen.stderr
    assert "evk-1: the board is reserved by ann@desk" in seen.stdout
    assert "evk-2: " not in seen.stdout
    (status, _) = desk.json("bob@desk", "status")
    assert status["holders"][0]["owner"] == "ann@desk"

    for refused in (
        desk.fleet("bob@desk", "reserve", "all", "--for", "1h"),
        desk.fleet("bob@desk", "reserve", "--end", "evk-1"),
    ):
        assert refused.returncode == 1
        assert "reserved by ann@desk" in refused.stderr
        assert "fleet reserve --end evk-1 --force" in refused.stderr
    assert len(desk.json("bob@desk", "reserve", "--list", "evk-2")[0]["holders"]) == 1, (
        "the other was free"
    )

    back = desk.json("ann@desk", "reserve", "--end", "evk-1")
    assert back[0]["outcome"] == "changed"
    assert "camera" in back[0]["text"]
    assert desk.json("ann@desk", "reserve", "--end", "evk-1")[0]["outcome"] == "unchanged"


def test_the_old_words_work_and_name_the_new_ones(desk: Desk) -> None:
    for old, new in (("who", "reserve --list"), ("unreserve", "reserve --end")):
        done = desk.fleet("ann@desk", old, "evk-1")
        assert done.returncode == 0, done.stderr
        assert f"`fleet {old}` is now `fleet {new}`" in done.stderr
        assert "is now" not in desk.fleet("ann@desk", old, "evk-1", "--json").stderr
        assert "is now" not in desk.fleet("ann@desk", *new.split(), "evk-1").stderr
    tree: Any = get_command(app)
    assert {"reserve", "who", "unreserve"} & set(tree.commands) == {"reserve"}


def test_force_breaks_what_others_hold(desk: Desk) -> None:
    desk.json("ann@desk", "reserve", "all", "--for", "3d")
    broken = desk.json("bob@desk", "reserve", "--end", "all", "--force")
    assert [one["outcome"] for one in broken] == ["changed", "changed"]
    assert [one["holders"] for one in desk.json("bob@desk", "reserve", "--list")] == [[], []]


def test_a_number_that_leaves_none_is_named_by_all_of_them(desk: Desk, tmp_path: Path) -> None:
    last = tmp_path / "one" / "leases" / "fleet-lease" / "write.999999998"
    last.mkdir(parents=True)
    maker = getpass.getuser()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("x")
    push = ("push", str(tmp_path / "folder"))
    for done in (
        desk.fleet("ann@desk", *push, "--limit", "evk-1"),
        desk.fleet("ann@desk", "reserve", "--end", "evk-1", "--force"),
    ):
        assert done.returncode == 1
        assert f"blocked by {maker}" in done.stderr
        assert f"rm -r {last}" in done.stderr
    who = desk.fleet("ann@desk", "reserve", "--list")
    assert f"blocked by {maker}: a file in the lease folder {last}" in who.stdout
    blocked, free = desk.json("ann@desk", "reserve", "--list")
    assert blocked["blocked"] == [{"kind": "write", "path": str(last), "maker": maker}]
    assert (free["blocked"], free["text"]) == ([], "free")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("reserve", "evk-1", "--for", "soon"), "not a duration"),
        (("reserve", "evk-1", "--for", "31d"), "the limit is 30 d"),
        (("reserve", "evk-9"), "evk-9"),
        (
            (
                "reserve",
                "--end",
            ),
            "HOST",
        ),
    ],
)
def test_bad_input(desk: Desk, args: tuple[str, ...], words: str) -> None:
    done = desk.fleet("ann@desk", *args)
    assert done.returncode == 2
    assert words in done.stderr
    assert desk.json("ann@desk", "reserve", "--list")[0]["holders"] == []
