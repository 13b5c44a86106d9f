"""Renderers: events in, text out; nothing of them decides anything."""

from __future__ import annotations

import io
import json
import sys

import pytest
from msgspec.structs import replace
from rich.console import Console
from rich.live import Live

from fleet.cli import live, output
from fleet.model.events import (
    Cooling,
    DeviceDone,
    Event,
    Looked,
    Output,
    Progress,
    RolledBack,
    RunDone,
    Soaking,
    StepStarted,
    Warned,
    WaveJudged,
    WaveStarted,
)

DONE = DeviceDone("evk", "changed", "release abc", "", 1.26, 9, 127_338_202, True)
STORY: list[Event] = [
    StepStarted("", "fetch", "QAIRT 2.51.0"),
    StepStarted("evk", "send", "send 2 files", 1000),
    Progress("evk", "send", 500, 1000),
    Progress("evk", "send", 1000, 1000),
    Warned("evk", "link broke; going on in 0.5 s"),
    Output("evk", "stdout", "hello "),
    Output("evk", "stdout", "world\nsecond"),
    RunDone("evk", {"text": "hello world"}),
    DONE,
]


def lines(
    monkeypatch: pytest.MonkeyPatch, *, show_output: bool, story: list[Event] = STORY
) -> list[str]:
    buffer = io.StringIO()
    monkeypatch.setattr(sys, "stderr", buffer)
    with live.listening(as_json=False, show_output=show_output) as listener:
        for event in story:
            listener(event)
    return buffer.getvalue().splitlines()


def test_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines(monkeypatch, show_output=False) == [
        "fetch: QAIRT 2.51.0",
        "evk: send: send 2 files",
        "evk: warning: link broke; going on in 0.5 s",
        "evk: changed (release abc) in 1.3 s, 9 round trips, 127.3 MB sent, emulated",
    ]


def test_a_refusal_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reason comes with the results."""
    story: list[Event] = [replace(DONE, outcome="refused", text="no room")]
    assert lines(monkeypatch, show_output=False, story=story)[0].startswith("evk: refused in 1.3 s")


def test_no_empty_parentheses_stand_behind_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    story: list[Event] = [replace(DONE, outcome="ok", text="")]
    assert lines(monkeypatch, show_output=False, story=story)[0].startswith("evk: ok in 1.3 s")


def test_output_of_a_runner_comes_in_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = lines(monkeypatch, show_output=True)
    assert shown[3:5] == ["evk stdout: hello world", "evk stdout: second"]


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with live.listening(as_json=True) as listener:
        for event in STORY:
            listener(event)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == [type(event).__name__ for event in STORY]
    assert events[-1]["bytes_sent"] == 127_338_202


def test_the_board_shows_bytes_and_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=120, height=20, force_terminal=True)
    monkeypatch.setattr(output, "errors", console)
    board = live._Board()
    for event in STORY[:4]:
        board.take(event)
    text = io.StringIO()
    Console(file=text, width=120).print(board.view())
    row = next(line for line in text.getvalue().splitlines() if "evk" in line)
    assert "send" in row
    assert "1.0 kB/1.0 kB" in row
    assert "/s" in row
    board.take(DONE)
    text = io.StringIO()
    Console(file=text, width=120).print(board.view())
    assert "changed" in text.getvalue()


def test_warnings_outlive_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a device on which nothing changed; each text once, with its devices."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=120, height=20, force_terminal=True, soft_wrap=True)
    monkeypatch.setattr(output, "errors", console)
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    said: list[str] = []
    monkeypatch.setattr(output, "note", said.append)
    with live.listening(as_json=False) as listener:
        for number in range(5):
            listener(Warned(f"evk{number}", "fastrpc-node: /dev/fastrpc-cdsp cannot be opened"))
            listener(Warned(f"evk{number}", "the link broke; fleet tries again in 1 s"))
            listener(DeviceDone(f"evk{number}", "unchanged", "", "", 1, 1, 0, True))
    text = "warning: fastrpc-node: /dev/fastrpc-cdsp cannot be opened"
    assert said == [f"evk0, evk1, evk2 and 2 more: {text}"]


def test_the_board_never_needs_more_than_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=100, height=12, force_terminal=True)
    monkeypatch.setattr(output, "errors", console)
    board = live._Board()
    for number in range(60):
        board.take(StepStarted(f"evk{number:02}", "send", "x", 10))
    board.take(DeviceDone("evk00", "failed", "no", "", 1, 1, 0, False))
    text = io.StringIO()
    Console(file=text, width=100).print(board.view())
    shown = text.getvalue().splitlines()
    assert len(shown) <= 12
    assert "53 more" in shown[-1]
    assert shown[0] == "1 of 60 done (1 failed), 0 of 590 B"
    assert not any("evk00" in line for line in shown), "busy devices come first"


def test_a_line_tells_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten devices of 100 MB, three of them not begun; two at the end and one half way in 10 s."""
    console = Console(file=io.StringIO(), width=80, height=20, force_terminal=True)
    monkeypatch.setattr(output, "errors", console)
    clock = [100.0]
    monkeypatch.setattr("fleet.cli.live.time.monotonic", lambda: clock[0])
    board, size = live._Board(total=10), 100_000_000
    assert board.whole() == "0 of 10 done, 10 waiting"
    board.take(StepStarted("", "fetch", "QAIRT 2.51.0"))
    for number in range(7):
        board.take(StepStarted(f"evk{number}", "send", "x", size))
    board.take(Progress("evk0", "send", 1, size))
    assert board.whole().endswith("0 of 10 done, 3 waiting, 1 B of about 1.0 GB"), "no rate yet"
    clock[0] += 10
    for number in range(2):
        board.take(Progress(f"evk{number}", "send", size, size))
        board.take(StepStarted(f"evk{number}", "probe", "open a session"))
        board.take(DeviceDone(f"evk{number}", "changed", "", "", 1, 1, size, False))
    board.take(Progress("evk2", "send", size // 2, size))
    said = "2 of 10 done, 3 waiting, 250.0 MB of about 1.0 GB, 30 s left"
    assert board.whole() == said
    text = io.StringIO()
    Console(file=text, width=80).print(board.view())
    assert text.getvalue().splitlines()[0] == said
    assert all(f"evk{number} " in text.getvalue() for number in range(7))
    board.take(Warned("evk2", "a long text " * 9))
    Console(file=text, width=80).print(board.view())
    lines = [line.rstrip().removesuffix("…") for line in text.getvalue().splitlines()]
    assert "…" not in "".join(lines), "the text makes room, never the name or the step"
    for number in range(2, 10):
        board.take(DeviceDone(f"evk{number}", "unchanged", "", "", 1, 1, 0, False))
    assert board.whole() == "10 of 10 done, 700.0 of 700.0 MB"


def test_a_step_that_says_nothing_shows_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=120, height=20, force_terminal=True)
    monkeypatch.setattr(output, "errors", console)
    clock = [0.0]
    monkeypatch.setattr("fleet.cli.live.time.monotonic", lambda: clock[0])
    board, text = live._Board(), io.StringIO()
    shown = Console(file=text, width=80, force_terminal=True)
    with Live(board.view(), console=shown, auto_refresh=False) as board.live:
        board.take(StepStarted("", "fetch", "QAIRT 2.51.0"))
        clock[0] = 7.0
        assert "7 s" not in text.getvalue()
        board.tick()
    assert "fetch (7 s)" in text.getvalue(), "the column of the step, not of the rate"


@pytest.mark.parametrize(
    ("room", "shown"),
    [
        (36, "QAIRT 2.51.0.260929181845 downloaded"),
        (35, "QAIRT 2.51.0.260929181845…"),
        (20, "QAIRT 2.51.0.260929…"),
    ],
)
def test_what_has_no_room_ends_in_a_mark_after_a_whole_word(room: int, shown: str) -> None:
    assert live._cut("QAIRT 2.51.0.260929181845 downloaded", room) == shown
    assert len(shown) <= room


def test_hostile_text_is_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.StringIO()
    monkeypatch.setenv("FORCE_COLOR", "1")
    console = Console(file=buffer, width=200, soft_wrap=True, force_terminal=False)
    monkeypatch.setattr(output, "errors", console)
    output.note("[bold red]not red[/] [/nothing]")
    board = live._Board()
    board.take(Warned("evk", "[/x] [bold"))
    Console(file=io.StringIO()).print(board.view())
    assert buffer.getvalue() == "[bold red]not red[/] [/nothing]\n"


def test_a_rollout_in_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    story: list[Event] = [
        WaveStarted("", "canary", "the canary: 1 devices", ("evk",)),
        Soaking("", "canary", "the canary soaks for 5 s", 5.0),
        Looked("evk", "failed", "after the soak: rebooted"),
        WaveJudged("", "canary", "rollback", "1 of 1 failed"),
        RolledBack("evk", "rolled back", "release a, was b"),
        WaveJudged("", "1", "go", ""),
    ]
    assert lines(monkeypatch, show_output=False, story=story) == [
        "the canary: 1 devices",
        "the canary soaks for 5 s",
        "evk: failed (after the soak: rebooted)",
        "wave canary: 1 of 1 failed",
        "evk: rolled back (release a, was b)",
    ]


COOLING: list[Event] = [
    StepStarted("evk", "cool", "nspss-0 is 52.0 °C, waiting for 45 °C, 10:00 min at most"),
    Cooling("evk", "nspss-0", 52.4, 45.0, 192.9),
]


def test_cooling_is_shown_on_a_terminal_and_quiet_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lines(monkeypatch, show_output=False, story=COOLING) == [
        "evk: cool: nspss-0 is 52.0 °C, waiting for 45 °C, 10:00 min at most"
    ]
    board = live._Board()
    for event in COOLING:
        board.take(event)
    text = io.StringIO()
    Console(file=text, width=120).print(board.view())
    assert "cooling" in text.getvalue()
    assert "nspss-0 52 °C, waiting for 45 °C (3:12 left)" in text.getvalue()
    with live.listening(as_json=True) as listener:
        listener(COOLING[1])
    said = json.loads(capsys.readouterr().out)
    assert said == {
        "event": "Cooling", "host": "evk", "zone": "nspss-0", "celsius": 52.4, "below": 45.0,
        "left": 192.9,
    }  # fmt: skip
