"""qnn-platform-validator of a set-up: what it says becomes a check; a stand-in says it here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleet.doctor.seen import Subject
from fleet.doctor.session import VALIDATOR, has_validator, run_validator
from fleet.model.command import Command
from fleet.model.diagnosis import OK, UNKNOWN, WARN
from fleet.model.errors import DeadlineError
from fleet.triage.knowledge import knowledge
from fleet.triage.ranking import rank
from fleet.triage.text import lines_of
from fleet.triage.witnesses import witnesses

# Own wording after runs that people published of the program on a QCS8275 and a Snapdragon X2.
PASSED = """\
Backend DSP Prerequisites: Present.
Core Version of the backend DSP: Hexagon Architecture V75
Unit Test on the backend DSP: Passed.

Backend Hardware  : Supported
Backend Libraries : Found
Unit Test         : Passed
"""
FAILED = """\
ERROR: -6 . Error while executing the sum function.
ERROR: Also make sure ADSP_LIBRARY_PATH points to directory containing skels.
Unit Test on the backend DSP: Failed.
"""
STAND_IN = """#!/bin/sh
[ "$*" = "--backend dsp --coreVersion --libVersion --testBackend --targetPath $PWD" ] || exit 99
[ -z "${DSP_LIBRARY_PATH+x}" ] || exit 98
: > Result.csv
echo "$LD_LIBRARY_PATH" >&2
"""


class Local:
    """A session that runs a command here."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def run(self, command: Command, _name: str, *, seconds: float) -> Any:
        env = {k: v for k, v in os.environ.items() if k not in command.unset} | dict(command.env)
        env |= {} if "DSP_LIBRARY_PATH" in command.unset else {"DSP_LIBRARY_PATH": "/elsewhere"}
        done = subprocess.run(
            command.argv, capture_output=True, text=True, env=env, check=False, timeout=60
        )
        return SimpleNamespace(text=done.stdout, error_text=done.stderr, status=done.returncode)


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    root = tmp_path / "npu"
    (root / "bin").mkdir(parents=True)
    names = frozenset({f"{root}/{VALIDATOR}"})
    return Subject("folder npu", str(root), f"{root}/lib", f"{root}/dsp", files=names)


def said(subject: Subject, words: str, status: int = 0) -> Any:
    tool = Path(subject.root) / VALIDATOR
    tool.write_text(f"{STAND_IN}cat <<'END'\n{words}END\nexit {status}\n")
    tool.chmod(0o755)
    base = Path(subject.root).parent / "fleet"
    seen: Any = SimpleNamespace(facts=SimpleNamespace(base_dir=str(base)))
    session: Any = Local()
    opened = run_validator(session, seen, subject)
    assert [path.name for path in base.parent.iterdir()] == ["npu"], "it leaves nothing"
    return opened


@pytest.mark.parametrize(
    ("words", "status", "verdict", "fact"),
    [
        (PASSED, 0, OK, "passed"),
        (PASSED, 1, WARN, "failed"),
        (FAILED, 0, WARN, "failed"),
        (FAILED, 1, WARN, "failed"),
        ("", 0, UNKNOWN, "unknown"),
        ("usage: other options\n", 2, UNKNOWN, "unknown"),
    ],
)
def test_its_words_and_its_status_decide(
    subject: Subject, words: str, status: int, verdict: str, fact: str
) -> None:
    check = said(subject, words, status).check
    assert (check.id, check.layer, check.status) == ("validator", "session", verdict)
    assert check.facts == {"validator": fact}
    assert check.command.startswith(f"{subject.root}/{VALIDATOR} --backend dsp")


def test_its_findings_are_shown_and_read_for_causes(subject: Subject) -> None:
    assert said(subject, PASSED).check.output.splitlines() == [
        "Backend Hardware : Supported",
        "Backend Libraries : Found",
        "Unit Test : Passed",
    ]
    opened = said(subject, FAILED)
    assert "ADSP_LIBRARY_PATH points to directory" in opened.check.output
    known = knowledge()
    ranked = rank(witnesses(lines_of(opened.log), known, "log"), known=known.causes)
    assert ranked, "its words name a cause"


def test_it_runs_only_where_the_set_up_has_it(subject: Subject) -> None:
    assert has_validator(subject)
    assert not has_validator(Subject("empty", subject.root, "lib", "dsp"))


def test_one_that_does_not_end_is_unknown(subject: Subject) -> None:
    def never(*_: object, **__: object) -> None:
        raise DeadlineError("late")

    session: Any = SimpleNamespace(run=never)
    seen: Any = SimpleNamespace(facts=SimpleNamespace(base_dir="/home/u/fleet"))
    check = run_validator(session, seen, subject).check
    assert (check.status, check.facts) == (UNKNOWN, {"validator": "unknown"})
