"""`fleet exec` on two real boards: what they print, what it ends with, who holds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from .desk import Desk


def test_each_line_has_its_board_in_front_and_the_streams_stay_apart(desk: Desk) -> None:
    done = desk.fleet("ann", "exec", "-l", "all", "echo $((1 + 1)); echo bad >&2; printf end")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["evk-1: 2", "evk-1: end", "evk-2: 2", "evk-2: end"]
    assert sorted(done.stderr.splitlines()) == ["evk-1: bad", "evk-2: bad"]


def test_words_after_the_dashes_are_a_program_with_its_arguments(desk: Desk) -> None:
    done = desk.fleet("ann", "exec", "-l", "evk-2", "--", "printf", "%s|", "a b", "$HOME", "-l")
    assert done.stdout == "evk-2: a b|$HOME|-l|\n", done.stderr


def test_no_escape_sequence_of_a_device_reaches_the_terminal(desk: Desk) -> None:
    attack = r"printf '\033]0;title\007\033[2Jshown\r\n'; printf '\033[31mred\n' >&2"
    done = desk.fleet("ann", "exec", "-l", "evk-1", attack)
    assert (done.stdout, done.stderr) == ("evk-1: shown\n", "evk-1: red\n")


def test_a_command_that_fails_on_one_board_is_not_0(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "base1").mkdir()
    done = desk.fleet(
        "ann", "exec", "-l", "all", f"test $SSH_CONNECTION_PORT = x || test -e {tmp_path}/none"
    )
    assert done.returncode == 1
    for board in ("evk-1", "evk-2"):
        assert f"{board}: the command failed with exit status 1" in done.stderr
    gone = desk.inventory.read_text() + "    absent: {host: 127.0.0.1, port: 1}\n"
    desk.inventory.write_text(gone)
    assert desk.fleet("ann", "exec", "-l", "all", "true").returncode == 3
    (one,) = desk.json("ann", "exec", "-l", "evk-1", "echo out; echo err >&2")
    assert (one["status"], one["stdout"], one["stderr"]) == (0, "out\n", "err\n")
    assert (one["outcome"], one["holders"]) == ("ok", [])


def test_the_limit_ends_the_command_with_its_children(desk: Desk, tmp_path: Path) -> None:
    late = f"sh -c 'sleep 3; touch {tmp_path}/went-on' & sleep 30; echo never"
    done = desk.fleet("ann", "exec", "-l", "evk-1", "--timeout", "1s", late)
    assert done.returncode == 3, done.stderr
    assert "did not finish within 1 s" in done.stderr
    assert "never" not in done.stdout
    desk.fleet("ann", "exec", "-l", "evk-1", "sleep 3")
    assert not (tmp_path / "went-on").exists()


def test_who_holds_the_board_is_said_and_a_lease_respects_it(desk: Desk) -> None:
    assert desk.fleet("ann", "reserve", "evk-1", "--reason", "camera").returncode == 0
    seen = desk.fleet("bob", "exec", "-l", "all", "echo here")
    assert seen.returncode == 0, seen.stderr
    assert "evk-1: the board is reserved by ann" in seen.stderr
    assert "evk-2: the board" not in seen.stderr
    refused = desk.fleet("bob", "exec", "-l", "all", "--lease", "echo here")
    assert refused.returncode == 1
    assert refused.stdout == "evk-2: here\n"
    assert "reserved by ann" in refused.stderr


def test_after_a_canary_that_fails_no_other_board_is_touched(desk: Desk, tmp_path: Path) -> None:
    done = desk.fleet(
        "ann", "exec", "-l", "all", "--canary", "evk-2", f"echo x >> {tmp_path}/seen; false"
    )
    assert done.returncode == 1
    assert (tmp_path / "seen").read_text() == "x\n"
    assert "evk-1: not attempted, because an earlier wave failed" in done.stderr


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("evk-1", "--", "uname", "-a"), "fleet exec -l evk-1 -i {i} -- uname -a"),
        (("all", "--", "touch", "{f}"), "fleet exec -l all -i {i} -- touch {f}"),
        (("evk-1", "evk-2", "--", "id"), "fleet exec -l evk-1 -l evk-2 id -i {i}"),
        (("evk-1,evk-2", "id"), "fleet exec -l evk-1,evk-2 id -i {i}"),
        (("evk-1",), "fleet exec -l evk-1 -i {i} -- uname -a"),
        (("-l", "evk-2", "evk-1", "id"), "fleet exec -l evk-1 id -i {i}"),
        (("touch {f}; id",), "fleet exec -l all 'touch {f}; id' -i {i}"),
        (("--", "touch", "{f}"), "fleet exec -l all -i {i} -- touch {f}"),
    ],
)
def test_a_device_is_never_a_command_and_several_devices_are_named(
    desk: Desk, tmp_path: Path, words: tuple[str, ...], line: str
) -> None:
    places = {"i": str(desk.inventory), "f": str(tmp_path / "ran")}
    done = desk.fleet("ann", "exec", *(word.format(**places) for word in words))
    assert done.returncode == 2
    assert f"try: {line.format(**places)}" in " ".join(done.stderr.split()), done.stderr
    assert not (tmp_path / "ran").exists()


def test_one_device_needs_no_selection(desk: Desk) -> None:
    lines = desk.inventory.read_text().splitlines()
    second = next(number for number, line in enumerate(lines) if "evk-2:" in line)
    desk.inventory.write_text("\n".join(lines[:second]) + "\n")
    done = desk.fleet("ann", "exec", "echo here")
    assert (done.returncode, done.stdout) == (0, "evk-1: here\n"), done.stderr
