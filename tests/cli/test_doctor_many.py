"""Forty boards on one page, and answers on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.cli.doctor import asked, given
from fleet.cli.doctor_view import show
from fleet.model.diagnosis import Check, Diagnosis, Evidence, Ranked
from fleet.model.errors import InputError
from fleet.triage.knowledge import knowledge
from fleet.triage.triage import triage

SIX = (
    "fastrpc-node-permission",
    "disk-full",
    "skel-not-found",
    "cdsp-not-running",
    "bundle-incomplete",
    "adb-offline",
)


def boards(count: int, causes: tuple[str, ...]) -> list[Diagnosis]:
    session = Check("session", "session", "ok", "opened")
    found = [Diagnosis(f"evk-{n:02}", "healthy", checks=(session,)) for n in range(count)]
    for number, name in enumerate(causes):
        ranked = Ranked(knowledge().causes[name], 0.9, (Evidence("ls", "crw------- root"),))
        check = Check("nodes", "nodes", "bad", "refused")
        found[number * 6] = Diagnosis(f"evk-{number * 6:02}", "problem", (ranked,), (check,))
    return found


def test_forty_boards_six_of_them_broken_are_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    """Before: 161 lines."""
    show(boards(40, SIX))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 45
    text = "\n".join(lines)
    for number in range(40):
        assert f"evk-{number:02}" in text
    assert text.count("(disk-full)") == 1


def test_boards_with_one_cause_share_it(capsys: pytest.CaptureFixture[str]) -> None:
    show(boards(40, ("disk-full",) * 6))
    text = capsys.readouterr().out
    assert text.count("(disk-full)") == 1
    (line,) = [line for line in text.splitlines() if "(disk-full)" in line]
    assert "evk-00, evk-06, evk-12" in line


def test_an_answer_is_a_question_and_a_word(tmp_path: Path) -> None:
    path = tmp_path / "out=1.txt"
    path.write_text("pasted", "utf-8")
    stage = "stage:connect"
    named = given([f"{stage}=host-key", f"kernel-log=@{path}"])
    assert named == {stage: "host-key", "kernel-log": "pasted"}
    assert given(None) == {}
    for wrong in ("yes", "=no", "a=@/nowhere/at/all"):
        with pytest.raises(InputError):
            given([wrong])


def test_nobody_is_asked_where_nobody_sits() -> None:
    log = "Failed to create device: 14001\n"
    found = asked(lambda answers: triage(log, answers=answers), {}, quiet=False)
    assert found.questions
