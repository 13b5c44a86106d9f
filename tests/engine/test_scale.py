"""The simulation of benchmarks/scale.py, against cases that can be reckoned by hand."""

from __future__ import annotations

import importlib.util
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "scale.py"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fleet_benchmarks_scale", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


scale = loaded()
# 1,000 bytes over links of 100 bytes a second: 10 s; talk 2 trips of 0.5 s; device 3 s.
PLAIN = scale.Scene(
    boards=1, sites=1, payload=1000.0, workstation_link=100.0, site_link=100.0, lan_link=1e9,
    board_link=100.0, wan_rtt=0.5, lan_rtt=0.0, slots=100, cpu=0.0, stream=1e9, client_cpu=0.0,
    trips=2, device=3.0, hashing=1e12, unreachable=0.0,
)  # fmt: skip


def seconds(**changes: object) -> float:
    return float(scale.simulate(replace(PLAIN, **changes)).seconds)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 1 + 10 + 3),
        ({"board_link": 50.0}, 1 + 20 + 3),
        ({"site_link": 25.0}, 1 + 40 + 3),
        ({"stream": 20.0}, 1 + 50 + 3),
        ({"hashing": 500.0}, 1 + 10 + 2 + 3),
        ({"payload": 0.0}, 1 + 3),
        ({"cpu": 0.25}, 0.25 + 1 + 10 + 3),
    ],
)
def test_one_board_is_a_sum(changes: dict[str, float], expected: float) -> None:
    assert seconds(**changes) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"boards": 2}, 1 + 20 + 3),  # the link is shared
        ({"boards": 2, "slots": 1}, 2 * (1 + 10 + 3)),  # one after the other
        ({"boards": 4, "slots": 2}, 2 * (1 + 20 + 3)),
        # One begins to send at 6, the other at 11, when half of the first is through; 10 s at
        # half the rate bring the first home at 21, and 5 s alone the second at 26.
        ({"boards": 2, "cpu": 5.0}, 26 + 3),
        ({"boards": 4, "sites": 2, "workstation_link": 1e9, "board_link": 1e9}, 1 + 20 + 3),
        ({"boards": 2, "sites": 2, "workstation_link": 1e9}, 1 + 10 + 3),
    ],
)
def test_boards_share_links_slots_and_cpu(changes: dict[str, float], expected: float) -> None:
    assert seconds(**changes) == pytest.approx(expected)


def test_a_worker_gets_the_payload_once_for_its_site() -> None:
    scene = replace(PLAIN, layout="workers", boards=8, sites=2, board_link=50.0)
    out = scale.simulate(scene)
    assert out.workstation_bytes == 2 * 1000
    assert out.seconds == pytest.approx(20 + 20 + 3), "two sites share 100; then boards at 50"
    slow = replace(scene, lan_link=100.0)
    assert scale.simulate(slow).seconds == pytest.approx(20 + 40 + 3), "four share the LAN"
    narrow = replace(scene, stream=100.0)
    assert scale.simulate(narrow).seconds == pytest.approx(20 + 40 + 3), "one process encrypts"
    assert scale.simulate(replace(narrow, processes=2)).seconds == pytest.approx(20 + 20 + 3)


@pytest.mark.parametrize(("boards", "rounds"), [(1, 1), (2, 2), (4, 3), (8, 4), (9, 5)])
def test_a_relay_doubles_each_round(boards: int, rounds: int) -> None:
    out = scale.simulate(replace(PLAIN, layout="relay", boards=boards))
    assert out.seconds == pytest.approx(1 + 10 * rounds + 3)
    assert out.workstation_bytes == 1000


def test_waves_wait_for_each_other_and_soak() -> None:
    waves = {"waves": (0.25, 1.0), "soak": 60.0}
    assert seconds(boards=4, **waves) == pytest.approx((1 + 10 + 3) + 60 + (1 + 30 + 3))


def test_boards_that_do_not_answer_hold_a_slot() -> None:
    out = scale.simulate(replace(PLAIN, boards=3, slots=1, unreachable=1.0, timeout=15.0))
    assert (out.seconds, out.failed, out.done) == (pytest.approx(45), 3, 0)


def test_cpu_is_cost_times_boards() -> None:
    direct = scale.simulate(replace(PLAIN, boards=1000, payload=0.0, cpu=0.05))
    assert direct.workstation_cpu == pytest.approx(50.0)
    assert direct.seconds >= 50.0
    near = replace(PLAIN, boards=1000, payload=0.0, cpu=0.05, layout="workers", client_cpu=0.004)
    assert scale.simulate(near).workstation_cpu == pytest.approx(4.0)


def test_the_chart_is_an_svg_with_a_line_a_layout() -> None:
    counts = (100, 200)
    rows = scale.table(scale.Scene(), counts)
    assert len(rows) == len(scale.CASES) * len(scale.LAYOUTS)
    root = ET.fromstring(scale.svg(rows, counts, scale.CASES[2][0]))
    lines = [one for one in root if one.tag.endswith("polyline")]
    assert len(lines) == len(scale.LAYOUTS)
