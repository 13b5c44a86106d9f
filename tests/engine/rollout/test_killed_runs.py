"""The workstation is killed (SIGKILL) at a line of the journal; another process goes on.

What it does then is counted by the journal (steps), by the engine (bytes) and by the log of
each board's own sshd (logins).
"""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .boards import Yard, yard

ALL = ["send", "stage", "health", "switch", "prune"]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Yard]:
    with yard(tmp_path, 2) as boards:
        yield boards


def work(boards: Yard, where: str) -> list[dict[str, Any]]:
    """One process that dies at `where` (or does not, with `-`); the lines that it wrote."""
    before = len(boards.lines()) if list(boards.runs.root.glob("*/*")) else 0
    argv = [str(boards.playbook), str(boards.inventory), str(boards.home), where]
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.rollout.worker", *argv],
        capture_output=True, text=True, check=False, timeout=120, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.returncode == (0 if where == "-" else -signal.SIGKILL), done.stderr
    return boards.lines()[before:]


def steps(lines: list[dict[str, Any]], host: str) -> list[str]:
    return [line["step"] for line in lines if line["line"] == "step" and line["host"] == host]


def ends(lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {line["host"]: line for line in lines if line["line"] == "end"}


def check_blobs(boards: Yard) -> None:
    """Old or new, never a third state: every name in the store is the hash of its content."""
    for name in boards.names:
        for blob in (boards.base(name) / "store").glob("*"):
            if not blob.name.endswith(".part"):
                with blob.open("rb") as stream:
                    assert hashlib.file_digest(stream, "sha256").hexdigest() == blob.name
        live = boards.base(name) / "current" / "app"
        if live.is_symlink():
            assert (boards.base(name) / "meta/app" / live.readlink().name / ".installed").exists()
            assert all(path.exists() for path in live.rglob("*"))


def test_one_run_of_many_processes(two: Yard) -> None:
    """Each process is killed one step later; none does again what was done."""
    two.operation("{canary: 1}")
    processes: list[tuple[str, list[str], list[str]]] = [
        # killed at; what it began on b1 and on b2 until then
        ("step:b1:send", ["send"], []),
        ("step:b1:health", ["send", "stage", "health"], []),  # nothing had been sent
        ("step:b1:prune", ["stage", "health", "switch", "prune"], []),  # the blobs are there
        ("end:b1", ["prune"], []),  # the switch was made: what comes after it is owed
        ("begin:b2", [], []),  # b1 is done
        ("step:b2:switch", [], ["send", "stage", "health", "switch"]),
        ("-", [], ["stage", "health", "switch", "prune"]),
    ]
    logins: list[int] = []
    for where, first, second in processes:
        lines = work(two, where)
        assert steps(lines, "b1") == first, where
        assert steps(lines, "b2") == second, where
        check_blobs(two)
        logins.append(two.contacts("b1"))
        if where == "end:b1":
            assert ends(lines)["b1"]["outcome"] == "changed", "by this run, if not by this process"
            assert ends(lines)["b1"]["bytes_sent"] == 0
    assert logins == [1, 2, 3, 4, 4, 4, 4], "no login to a board that is done"
    assert ends(lines)["b2"]["bytes_sent"] == 0, "the killed one had sent it all"
    state = two.state()
    assert state.complete
    assert state.word == "finished"
    assert [one.outcome for one in state.devices.values()] == ["changed", "changed"]
    assert len(set(two.live)) == 1
    code, said = two.fleet("deploy", "--resume", "last")
    assert (code, "is finished: 2 devices, nothing to do" in said) == (0, True), said
    assert two.contacts("b1") == 4


def test_a_part_is_gone_on_with_at_its_byte(two: Yard) -> None:
    two.write_model("big", 24_000_000)
    two.operation("{canary: 1}")
    whole = work(two, "Progress:8000000")
    assert steps(whole, "b1") == ["send"]
    (first,) = [line for line in whole if line.get("step") == "send"]
    lines = work(two, "end:b1")
    (second,) = [line for line in lines if line.get("step") == "send"]
    had = first["bytes"] - second["bytes"]
    assert 4_000_000 < had < first["bytes"], "what had arrived is not sent again"
    assert ends(lines)["b1"]["bytes_sent"] == second["bytes"]
    assert two.contacts("b2") == 0


@pytest.mark.slow
def test_a_killed_rollback_and_a_killed_soak_go_on(two: Yard) -> None:
    two.first_release("b1", "b2")
    old = two.live
    for path in two.runs.root.glob("*/journal.jsonl"):
        path.unlink()
    two.write_model("two")
    two.operation("{canary: 1, soak: 100ms, on_fail: rollback}")
    lines = work(two, "soak")
    assert steps(lines, "b1") == ALL
    lines = work(two, "begin:b2")
    assert [line["host"] for line in lines if line["line"] == "look"] == ["b1"]
    assert steps(lines, "b1") == [], "looked at, not deployed to"
    two.make_sick("b2")
    lines = work(two, "rolling")
    assert steps(lines, "b2") == ["send", "stage", "health"]
    logins = two.contacts("b2")
    lines = work(two, "-")
    backs = [(line["host"], line["outcome"]) for line in lines if line["line"] == "back"]
    assert backs == [("b1", "rolled back")]
    assert two.live == old
    assert two.contacts("b2") == logins, "b2 was never switched"
    assert two.state().word == "rolled back"
    code, said = two.fleet("deploy", "--resume", "last")
    assert code == 1, said
    assert "was rolled back" in said


@pytest.mark.slow
def test_killed_after_every_line(tmp_path: Path) -> None:
    """Every line of a whole run, one kill each: each time the next process ends it."""
    with yard(tmp_path / "all", 2) as boards:
        boards.operation("{canary: 1, soak: 100ms}")
        places = []
        for line in work(boards, "-"):
            words = [line["line"], line.get("host", ""), line.get("step", "")]
            places.append(":".join(words).rstrip(":"))
    assert len(places) > 20
    for number, where in enumerate(dict.fromkeys(places)):
        with yard(tmp_path / str(number), 2) as boards:
            boards.operation("{canary: 1, soak: 100ms}")
            first = work(boards, where)
            done = {host for host, line in ends(first).items() if line["outcome"] == "changed"}
            logins = {name: boards.contacts(name) for name in done}
            looked = {line["host"] for line in first if line["line"] == "look"}
            check_blobs(boards)
            if not boards.state().complete:
                second = work(boards, "-")
                for name in done:
                    looks = 0 if name in looked else 1
                    assert boards.contacts(name) == logins[name] + looks, where
                    assert steps(second, name) == [], where
            check_blobs(boards)
            assert boards.state().complete, where
            assert len(set(boards.live)) == 1
