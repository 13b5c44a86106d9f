"""The doctor without google-re2: the same answers, and a deadline for a log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fleet.model.errors import DeadlineError, InputError
from fleet.triage import bounded, patterns
from fleet.triage.knowledge import knowledge
from fleet.triage.text import lines_of
from fleet.triage.triage import triage
from fleet.triage.witnesses import witnesses

ROOT = Path(__file__).parents[2]
_EVERY = 8  # of the examples of causes
_WITHOUT = """
import sys
sys.modules["re2"] = None
from tests.triage.test_bounded import answers
from fleet.triage import bounded, patterns
assert not patterns.LINEAR
bounded._inside = True
print(answers())
"""
SLOW = "(x+x+)+[yz]"  # over many x: RE2 answers at once, a search that goes back never


def answers() -> str:
    """The diagnoses of examples, as text."""
    logs = [one.log for cause in knowledge().causes.values() for one in cause.examples if one.log]
    assert len(logs) > 100
    return repr([triage(log) for log in logs[::_EVERY]])


def test_both_matchers_give_the_same_diagnoses() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=False, timeout=120,
        cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip("\n") == answers()


def test_a_log_is_read_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    log = "Failed to create device: 14001\n"
    known, direct = knowledge(), triage(log)
    seen = witnesses(lines_of(log), known)
    monkeypatch.setattr(patterns, "LINEAR", False)
    assert repr(triage(log)) == repr(direct)
    assert repr(witnesses(lines_of(log), known)) == repr(seen)
    with pytest.raises(InputError, match="no cause files"):
        triage(log, causes=ROOT / "docs" / "sources")


def test_a_pattern_that_does_not_finish_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "SECONDS", 2.0)
    with pytest.raises(DeadlineError, match="took longer than 2 s") as caught:
        bounded._elsewhere("re", "search", (SLOW, "x" * 200), {})
    assert "re2" in caught.value.hint
