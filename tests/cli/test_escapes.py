"""What a device says is shown on a terminal, never obeyed by it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from fleet.cli import live, output
from fleet.model.errors import DeviceError
from fleet.model.events import DeviceDone, Event, Output, RunDone, StepStarted, Warned

ATTACK = "\x1b[2J\x1b]0;title\x07\x9b31m\x1b[6n\u202eevil\u202c\r\x08[bold]x[/]"
STORY: list[Event] = [
    StepStarted("evk", "send", ATTACK),
    Warned("evk", ATTACK),
    Output("evk", "stdout", f"{ATTACK}\n{ATTACK[:3]}"),
    Output("evk", "stdout", f"{ATTACK[3:]}\n"),
    RunDone("evk", {"text": ATTACK}),
    DeviceDone("evk", "failed", ATTACK, ATTACK, 1, 1, 0, False),
]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    buffer = io.StringIO()
    for name in ("errors", "console"):
        monkeypatch.setattr(output, name, Console(file=buffer, width=200, soft_wrap=True))
    return buffer


def harmless(text: str) -> bool:
    return not any(one != "\n" and (ord(one) < 32 or 127 <= ord(one) < 160) for one in text)


def test_events(screen: io.StringIO) -> None:
    with live.listening(as_json=False, show_output=True) as listener:
        for event in STORY:
            listener(event)
    text = screen.getvalue()
    assert "[bold]x[/]" in text, "it is shown"
    assert harmless(text)
    assert "\u202e" not in text


def test_the_live_table(screen: io.StringIO) -> None:
    board = live._Board()
    for event in STORY:
        board.take(event)
        Console(file=screen, width=200).print(board.view())
    assert harmless(screen.getvalue())


def test_results_errors_and_tables(screen: io.StringIO) -> None:
    output.say(ATTACK)
    output.note(ATTACK)
    output.show_error(DeviceError(ATTACK, device="evk", hint=ATTACK))
    output.table("runs", ("what",), [(ATTACK,), (None,)])
    text = screen.getvalue()
    assert text.count("[bold]x[/]") >= 4
    assert harmless(text)


def test_what_a_person_copies_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """rich would turn the tab into blanks: another file on the device."""
    output.literal("printf 'a\tb' [x]")
    assert capsys.readouterr().out == "printf 'a\tb' [x]\n"


def test_a_line_without_an_end_is_shown_in_pieces(screen: io.StringIO) -> None:
    lines = live._Lines(show_output=True)
    for _ in range(30):
        lines.take(Output("evk", "stdout", "x" * 1000))
        assert len(lines._begun["evk", "stdout"]) <= live.LONGEST_LINE
    assert screen.getvalue().count("x") >= 26_000
