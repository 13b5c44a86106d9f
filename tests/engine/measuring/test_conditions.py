"""Looks at a board while a real run goes on it, over a real sshd."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from fleet.lab import Lab
from fleet.model.deadline import Deadline
from fleet.model.events import Event, Output
from fleet.ops.looks import conditions_of
from tests.profiles.records import load

from .conftest import BOOT, ZONE, Rig

LIMIT = "devices/system/cpu/cpufreq/policy0/scaling_max_freq"


def test_a_run_has_its_conditions(rig: Rig) -> None:
    rig.write("class/power_supply/usb/online", 1)
    rig.behave(f"sleep 0.7; put {ZONE} 61000; sleep 0.5")
    result = rig.run(sample=0.2)
    assert result.error is None, result.error
    (record,) = result.records
    seen = record.conditions
    assert record.counts
    assert record.emulated
    assert record.marks == ()
    assert seen.before is not None
    assert seen.after is not None
    assert seen.before.zones == {"nspss-0": 41.3, "nspss-1": 40.9, "cpuss-0": 43.6, "ddr": 39.5}
    assert seen.before.at <= 0.0
    assert len(seen.during) >= 3
    assert [one.at for one in seen.during] == sorted(one.at for one in seen.during)
    assert seen.during[0].zones["nspss-0"] == 41.3
    assert seen.after.zones["nspss-0"] == 61.0
    assert seen.after.at >= 1.2
    assert seen.before.clocks == {
        "cpu:policy0": 1.2e9,
        "cpu:policy4": 1.2e9,
        "devfreq:lab-ddr": 1.6e9,
    }
    assert seen.limits == {"cpu:policy0": 2.4e9, "cpu:policy4": 2.4e9, "devfreq:lab-ddr": 3.2e9}
    assert seen.maxima == {"cpu:policy0": 2.4e9, "cpu:policy4": 2.4e9}
    assert seen.governors["cpu:policy0"] == "schedutil"
    assert seen.power == {"usb": "online"}
    assert (
        seen.boot_id
        == seen.boot_id_after
        == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    )
    assert seen.interval == 0.2
    assert seen.cost is not None
    kept = Path(record.artifacts["fleet-looks.txt"]).read_text()
    assert conditions_of(kept, 0.2) == seen


def test_looks_cost_no_round_trips(rig: Rig) -> None:
    rig.behave("sleep 0.5")
    many, none = rig.run(sample=0.1), rig.run(sample=None)
    assert len(many.records[0].conditions.during) >= 3
    assert none.round_trips == many.round_trips - 1, "this runner has nothing else to collect"
    assert none.records[0].conditions.samples == ()
    assert "fleet-looks.txt" not in none.records[0].artifacts


def test_another_boot_id_does_not_count(rig: Rig) -> None:
    (rig.root / BOOT).parent.mkdir(parents=True)
    (rig.root / BOOT).write_text("a" * 36 + "\n")
    rig.behave(f"echo {'b' * 36} > ../{BOOT}")
    result = rig.run()
    (record,) = result.records
    assert record.conditions.rebooted
    assert record.problems == ("rebooted",)
    assert not record.counts
    assert result.outcome == "failed"
    (again,) = rig.run().records
    assert again.counts, "the same boot id before and after"


def test_a_limit_that_falls_marks_the_run_as_throttled(rig: Rig) -> None:
    rig.behave(f"sleep 0.3; put {LIMIT} 1200000; sleep 0.3")
    first, second = rig.run(sample=0.1, repeats=2).records
    why = "throttled: the clock limit of cpu:policy0 fell from 2.40 to 1.20 GHz"
    assert first.marks == (why,)
    assert first.counts
    assert second.marks == (why, "capped: cpu:policy0 at 1.20 of 2.40 GHz")


def test_a_run_past_its_limit_keeps_its_looks(rig: Rig) -> None:
    rig.behave("sleep 20")
    (record,) = rig.run(timeout=1.0, sample=0.2).records
    assert record.status == 124
    assert not record.counts
    assert len(record.conditions.during) >= 3
    assert record.conditions.after is not None


def test_a_broken_link_leaves_a_record(rig: Rig) -> None:
    """The board did not start anew, which is learned over a new connection."""
    rig.behave("echo begun >&2; sleep 2")
    cutters: list[threading.Thread] = []

    def hear(event: Event) -> None:
        if isinstance(event, Output) and "begun" in event.text and not cutters:
            cutters.append(threading.Thread(target=cut, args=(rig.lab,)))
            cutters[0].start()

    rig.hear = hear
    result = rig.run()
    cutters[0].join()
    assert result.error is not None
    assert result.outcome == "unreachable"
    (record,) = result.records
    assert record.problems == ("the connection broke",)
    (kept,) = load(rig.runs, record.run_id)
    assert kept["counts"] is False


def cut(lab: Lab) -> None:
    """End every connection of the board as a broken cable would: its sshd children are killed."""
    (board,) = lab.boards
    for kid in children(board.pid):
        for one in (*children(kid), kid):
            try:
                name = Path(f"/proc/{one}/comm").read_text().strip()
            except OSError:
                continue
            if name.startswith("sshd"):
                os.kill(one, signal.SIGKILL)


def children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def test_the_looks_end_with_a_killed_workstation(
    rig: Rig, measured: tuple[Lab, Path], tmp_path: Path
) -> None:
    lab, folder = measured
    mark = f"sleep 1.5{os.getpid():06d}"
    rig.behave(f": > ../begun; {mark}")
    (rig.root / "begun").unlink(missing_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet", "run", "-i", str(lab.inventory),
         str(folder / "playbook.yaml"), "--json"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "FLEET_HOME": str(tmp_path / "home")},
    )  # fmt: skip
    pause, deadline = threading.Event(), Deadline(30)
    try:
        while not (rig.root / "begun").exists():
            assert not deadline.expired
            pause.wait(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    ours = str(lab.folder.root)
    deadline = Deadline(15)
    assert sampling(ours), "the run goes on without the workstation, and is looked at"
    while sampling(ours):
        assert not deadline.expired, sampling(ours)
        pause.wait(0.05)


def sampling(words: str) -> list[str]:
    """Command lines of run.sh and what came of it that name this board's folder."""
    done = subprocess.run(
        ["pgrep", "-af", "fleet-look"], capture_output=True, text=True, check=False
    )
    return [line for line in done.stdout.splitlines() if words in line]
