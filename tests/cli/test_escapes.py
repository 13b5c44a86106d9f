"""What a device says is shown on a terminal, never obeyed by it."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

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


@pytest.fixture(params=["terminal", "pipe"])
def said(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[], str]:
    if request.param == "pipe":
        return lambda: "".join(capsys.readouterr())
    buffer = io.StringIO()
    monkeypatch.setenv("FORCE_COLOR", "1")
    for name in ("errors", "console"):
        console = Console(file=buffer, width=200, soft_wrap=True, force_terminal=False)
        monkeypatch.setattr(output, name, console)
    return buffer.getvalue


def harmless(text: str) -> bool:
    return not any(one != "\n" and (ord(one) < 32 or 127 <= ord(one) < 160) for one in text)


def test_events(said: Callable[[], str]) -> None:
    with live.listening(as_json=False, show_output=True) as listener:
        for event in STORY:
            listener(event)
    text = said()
    assert "[bold]x[/]" in text, "it is shown"
    assert harmless(text)
    assert "\u202e" not in text


def test_the_live_table() -> None:
    screen = io.StringIO()
    board = live._Board()
    for event in STORY:
        board.take(event)
        Console(file=screen, width=200).print(board.view())
    assert harmless(screen.getvalue())


def test_results_errors_and_tables(said: Callable[[], str]) -> None:
    output.say(ATTACK)
    output.note(ATTACK)
    output.show_error(DeviceError(ATTACK, device="evk", hint=ATTACK))
    output.table("runs", ("what",), [(ATTACK,), (None,)])
    text = said()
    assert text.count("[bold]x[/]") >= 4
    assert harmless(text)


def test_what_a_person_copies_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """rich would turn the tab into blanks: another file on the device."""
    output.literal("printf 'a\tb' [x]")
    assert capsys.readouterr().out == "printf 'a\tb' [x]\n"


def test_a_line_without_an_end_is_shown_in_pieces(said: Callable[[], str]) -> None:
    lines = live._Lines(show_output=True)
    for _ in range(30):
        lines.take(Output("evk", "stdout", "x" * 1000))
        assert len(lines._begun["evk", "stdout"]) <= live.LONGEST_LINE
    assert said().count("x") >= 26_000


def test_a_table_in_a_pipe_is_lines_with_bars(capsys: pytest.CaptureFixture[str]) -> None:
    output.table("runs", ("device", "", "time"), [("evk-1", "a\nb", None), ("é", "[x]", 12)])
    assert capsys.readouterr().out.splitlines() == [
        "runs",
        "device |     | time",
        "-------+-----+--------",
        "evk-1  | a b | unknown",
        "é      | [x] | 12",
    ]


def test_a_stream_that_was_closed_before_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """`fleet status >&-`: Python has None there."""
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    output.say("a")
    output.note("b")
    output.table("c", ("d",), [("e",)])
    output.show_error(DeviceError("f", device="evk", hint="g"))
    assert not output.on_terminal()
