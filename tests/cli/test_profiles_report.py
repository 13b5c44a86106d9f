"""`fleet profiles report` and the pictures of `show` as a person uses them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from fleet.cli import profiles
from fleet.cli.main import main
from fleet.model.extras import install_extra
from fleet.model.record import Record
from fleet.profiles.compare.groups import by_run
from fleet.profiles.pictures import Bar
from fleet.profiles.runs import RunStore
from fleet.profiles.stats.difference import difference
from tests.profiles.compare.made import noisy, repeats, save


def fleet(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["fleet", "profiles", *words])
    try:
        main()
    except SystemExit as left:
        return int(left.code or 0)
    return 0


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    a, b = repeats(noisy(10, 8, 1)), repeats([*noisy(9, 7, 2), None], emulated=True)
    return str(save(tmp_path / "a.jsonl", a)), str(save(tmp_path / "b.jsonl", b))


def test_two_groups_become_one_file(
    files: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = tmp_path / "r.html"
    assert fleet(monkeypatch, "report", *files, "--output", str(target)) == 0
    said = capsys.readouterr().out
    assert f"{target}: {target.stat().st_size / 1000:,.0f} kB, 1 board" in said
    assert "next: fleet profiles compare" in said
    assert "contain emulated runs" in target.read_text("utf-8")
    assert not list(tmp_path.glob("*.part"))


def test_the_sides_of_an_ab_are_groups_or_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def of(number: int) -> list[Record]:
        name = f"ab-20261104-10000{number}-dddddd"
        return [
            replace(one, tags=(name, f"{name}-{side}"), run_id=f"{name[3:]}-000.0{side.lower()}")
            for side, level in (("A", 10), ("B", 20))
            for one in repeats(noisy(level, 6, number))
        ]

    one = str(save(tmp_path / "one.jsonl", of(0)))
    target = tmp_path / "r.html"
    assert fleet(monkeypatch, "report", one, "--output", str(target), "--json") == 0
    name = "tag:ab-20261104-100000-dddddd"
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert [(group["selection"], group["counted"]) for group in groups] == [
        (f"{name}-A", 6), (f"{name}-B", 6)
    ]  # fmt: skip
    several = [record for number in range(4) for record in of(number)]
    mixed = str(save(tmp_path / "mixed.jsonl", [*several, *repeats(noisy(9, 7, 2))]))
    assert fleet(monkeypatch, "report", mixed, "--output", str(target), "--json") == 0
    done = capsys.readouterr()
    assert json.loads(done.out)["groups"] == [{"selection": mixed, "runs": 7, "counted": 7}]
    assert "leaves out the runs of `fleet ab`" in done.err
    only = str(save(tmp_path / "only.jsonl", several))
    assert fleet(monkeypatch, "report", only, "--output", str(target)) == 2
    assert "are 8: each side is a group" in " ".join(capsys.readouterr().err.split())


def test_json_says_what_is_in_it(
    files: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = tmp_path / "r.html"
    assert fleet(monkeypatch, "report", files[1], "--output", str(target), "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["bytes"] == target.stat().st_size
    assert data["groups"] == [{"selection": files[1], "runs": 8, "counted": 8}]
    assert data["metrics"] == ["decode_tps"]
    assert data["emulated"] == "yes"


def test_without_the_extra_points_and_tables_are_there_and_one_line_names_it(
    files: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    target = tmp_path / "r.html"
    assert fleet(monkeypatch, "report", *files, "--output", str(target)) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.endswith(install_extra("report"))] == lines
    assert len(lines) == 1
    text = target.read_text("utf-8")
    (drawn,) = re.findall(r'<svg role="img".*?</svg>', text, re.DOTALL)
    ET.fromstring(drawn)
    assert drawn.count("<circle") == 15
    assert drawn.count("<rect") == 2
    assert '<h2 id="heat">' not in text
    assert "extra `report`" in text


def test_a_file_that_cannot_be_written(
    files: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fleet(monkeypatch, "report", files[0], "--output", str(tmp_path / "no" / "r.html")) == 1
    assert fleet(monkeypatch, "report", *[files[0]] * 7) == 2


def test_show_draws_the_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = RunStore(tmp_path / "runs")
    for one in [*repeats(noisy(10, 6, 1)), *repeats(noisy(5, 6, 2), host="evk-02\x1b[31m")]:
        store.save(store.folder(one.run_id, one.host[:6], one.repeat, warmup=False), one)
    assert fleet(monkeypatch, "show", "last", "--store", str(store.root)) == 0
    said = capsys.readouterr().out
    assert "evk-01 gen tok/s " in said
    assert "with 95 % intervals" in said
    assert "\x1b" not in said


def test_bars_have_the_intervals_of_compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five runs of three repeats are five values."""
    drawn = list[Bar]()

    def keep(found: Sequence[Bar], *_: object, **__: object) -> list[str]:
        drawn.extend(found)
        return []

    monkeypatch.setattr(profiles, "bars", keep)
    made = [
        one
        for host, seed in (("evk-01", 1), ("evk-02", 2))
        for run, middle in enumerate(noisy(10, 5, seed, 0.03))
        for one in repeats(
            noisy(middle, 3, run, 0.001),
            host=host,
            run_id=f"202611{run + 1:02}-100000-aaaaaa",
            started=f"2026-11-{run + 1:02}T10:00:00Z",
        )
    ]
    profiles.show_pictures(made)
    assert [one.name for one in drawn] == ["evk-01", "evk-02"]
    for bar in drawn:
        mine = [one for one in made if one.host == bar.name]
        theirs = difference(by_run(mine, "decode_tps"), []).a
        assert theirs is not None
        assert (bar.low, bar.middle, bar.high) == (theirs.low, theirs.mid, theirs.high)
