"""The Nemotron walk-through as a playbook: its plan has every step, on recorded IQ-9075 facts.

The bundle is a stand-in (our tiny one under the name of the real one): the real one is not
ours to ship. The order of the walk-through is that of a person who finds each trouble when it
comes; fleet puts rights before bytes, so that nothing is sent to a board that cannot run it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.config.playbook import load_playbook

from .conftest import ROOT, Bare

pytestmark = pytest.mark.qairt
Make = Callable[..., Bare]
PLAYBOOK = ROOT / "playbooks" / "nemotron-iq9075.yaml"

# Steps of the walk-through, in the order of the plan; the number is the walk-through's.
STEPS = [
    (6, "install", "qcom-fastrpc1"),
    (6, "install", "qcom-libdmabufheap-dev"),
    (5, "apply udev rules", "fastrpc-*"),
    (6, "add ubuntu to group", "fastrpc"),
    (6, "log in again", "fastrpc"),
    (2, "send", "files"),
    (3, "send", "files"),
    (4, "stage", "env.sh"),
    (7, "open an NPU session", "nemotron-nano-8b"),
    (8, "run genie", "prompt of"),
    (9, "run genie", "tokens"),
    (10, "collect the profile of each run", "TTFT"),
]


@pytest.fixture
def playbook(tmp_path: Path) -> Path:
    """The playbook as it is committed, beside a stand-in for its bundle."""
    bundle = tmp_path / "bundles" / "nemotron-nano-8b-iq9075"
    shutil.copytree(ROOT / "assets" / "tiny-genie", bundle)
    (tmp_path / "playbooks").mkdir()
    return Path(shutil.copy(PLAYBOOK, tmp_path / "playbooks"))


def test_the_plan_lists_every_step_in_order(bare: Make, playbook: Path) -> None:
    board = bare("bare-evk")
    plan = board.plan(load_playbook(playbook)).plan
    assert plan is not None
    assert (plan.facts.soc.chip, plan.facts.soc.soc_model, plan.facts.soc.hexagon_arch) == (
        "QCS9075",
        77,
        "v73",
    )
    assert not plan.refused, plan.findings
    assert any("compiled with QAIRT" in note and "runtime" in note for note in plan.notes)
    lines = [*(action.describe() for action in plan.actions), *plan.then]
    at = 0
    for number, first, second in STEPS:
        found = [n for n in range(at, len(lines)) if first in lines[n] and second in lines[n]]
        assert found, f"step {number} ({first} ... {second}) is not in {lines[at:]}"
        at = found[0]
    assert {number for number, _, _ in STEPS} == set(range(2, 11))


def test_nothing_of_the_distributions_qnn_is_installed(bare: Make, playbook: Path) -> None:
    plan = bare("bare-evk").plan(load_playbook(playbook)).plan
    assert plan is not None
    words = " ".join(" ".join(c.argv) for action in plan.actions for c in action.commands())
    assert "libqnn" not in words
    assert "qnn-tools" not in words


def test_it_goes_from_the_bare_board_to_a_measured_run(bare: Make, playbook: Path) -> None:
    """With the stand-in bundle, on the emulator: real apt, groups, release, session, profile."""
    board = bare("bare-evk")
    book = load_playbook(playbook)
    assert book.run is not None
    # The context of the stand-in is 128 tokens: too short for the prompt of the playbook.
    book = replace(book, run=replace(book.run, prompt="What is fleet?", max_tokens=64))
    result = board.deploy(book)
    assert result.error is None, result.error
    assert "fastrpc" in board.root("id -Gn ubuntu")
    assert board.root("ls /usr/lib/x86_64-linux-gnu/libcdsprpc.so").strip()
    assert len(result.records) == 6
    assert all(one.emulated and one.counts and one.metrics.ttft_ms for one in result.records[1:])
    again = board.deploy(book)
    assert (again.outcome, again.bytes_sent) == ("unchanged", 0)
    assert again.round_trips <= 3
