"""An archive for a maintainer: its list first, a question where somebody can answer it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import typer

from fleet.cli import output
from fleet.cli.archives import send_out

MEMBERS = {"selftest/device-1/raw/log.txt": "fastrpc\n", "selftest/device-1/summary.md": "# x\n"}


def at_a_terminal(monkeypatch: pytest.MonkeyPatch, answer: bool) -> list[str]:
    """Somebody who answers; the questions that were asked."""
    asked: list[str] = []

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr(typer, "confirm", confirm)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(type(output.errors), "is_terminal", True)
    return asked


@pytest.mark.parametrize("answer", [True, False])
def test_what_goes_out_is_shown_before_it_is_asked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: bool,
) -> None:
    asked, path = at_a_terminal(monkeypatch, answer), tmp_path / "x.tar.gz"
    assert send_out(path, MEMBERS, hint="", yes=False, as_json=False) is answer
    assert path.exists() is answer
    assert asked == [f"Write {path}?"]
    said = " ".join(capsys.readouterr().err.split())
    assert "8 bytes device-1/raw/log.txt lines of the log on FastRPC and DSPs" in said
    assert said.index("device-1/summary.md") < said.index("wrote" if answer else "nothing was")


@pytest.mark.parametrize(("yes", "as_json"), [(True, False), (False, True)])
def test_nobody_is_asked_with_yes_or_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, yes: bool, as_json: bool
) -> None:
    asked, path = at_a_terminal(monkeypatch, answer=False), tmp_path / "x.tar.gz"
    assert send_out(path, MEMBERS, hint="", yes=yes, as_json=as_json)
    assert path.exists()
    assert asked == []


def test_without_a_terminal_it_is_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, path = at_a_terminal(monkeypatch, answer=False), tmp_path / "x.tar.gz"
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    assert send_out(path, MEMBERS, hint="", yes=False, as_json=False)
    assert path.exists()
    assert asked == []
