"""`fleet undo` asks before it changes the system of a device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LINE = {
    "schema": 1, "begin": "write /etc/udev/rules.d/60-npu.rules", "undo": [["true"]],
    "staged": {}, "needs_root": False, "refreshes": False, "seconds": 5.0, "no_undo": "",
}  # fmt: skip
RUN = "20261101-100000-aaaaaa"
# Nothing listens there: a connection means that fleet did not wait for the answer.
INVENTORY = "all:\n  hosts:\n    b1: {host: 127.0.0.1, port: 1, user: root, connect_timeout: 1s}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log = tmp_path / "home" / "undo" / RUN / "b1.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text(json.dumps(LINE) + "\n" + json.dumps({"end": True}) + "\n")
    (tmp_path / "inventory.yaml").write_text(INVENTORY)
    return tmp_path


def undo(folder: Path, *options: str, answer: bytes | None = None) -> tuple[int, str]:
    """Exit code and output; with an answer, standard input is a terminal."""
    person, terminal = os.openpty()
    try:
        os.write(person, answer or b"")
        done = subprocess.run(
            [sys.executable, "-m", "fleet", "undo", "last", "-i", "inventory.yaml", *options],
            cwd=folder, stdin=subprocess.DEVNULL if answer is None else terminal,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120,
            env={**os.environ, "FLEET_HOME": str(folder / "home"), "NO_COLOR": "1"},
        )  # fmt: skip
    finally:
        os.close(person)
        os.close(terminal)
    return done.returncode, done.stdout


def test_no_terminal_and_no_yes_is_an_error_with_the_command(folder: Path) -> None:
    code, said = undo(folder)
    assert code == 2, said
    assert f"fleet undo {RUN} --yes -i inventory.yaml" in said
    assert "b1 " not in said


def test_a_person_sees_the_steps_and_can_say_no(folder: Path) -> None:
    code, said = undo(folder, answer=b"n\n")
    assert code == 1, said
    assert str(LINE["begin"]) in said
    assert "unreachable" not in said


@pytest.mark.parametrize(("options", "answer"), [(("--yes",), None), ((), b"y\n")])
def test_yes_goes_on_to_the_devices(
    folder: Path, options: tuple[str, ...], answer: bytes | None
) -> None:
    code, said = undo(folder, *options, answer=answer)
    assert code == 3, said
    assert "unreachable" in said


def test_last_is_the_run_of_the_newest_time(folder: Path) -> None:
    """A run whose name is in the future was begun while the clock was wrong."""
    log = folder / "home" / "undo" / RUN / "b1.jsonl"
    for other in ("20991231-235959-aaaaaa", "20261031-100000-zzzzzz"):
        copy = folder / "home" / "undo" / other / "b1.jsonl"
        copy.parent.mkdir()
        copy.write_text(log.read_text())
    assert f"fleet undo {RUN} --yes" in undo(folder)[1]
