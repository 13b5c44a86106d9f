"""A program on Windows gets exactly the arguments that were meant."""

from __future__ import annotations

import base64
import re
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleet.device.texts import text_of
from fleet.model.command import Call, Command, script
from fleet.model.errors import InputError
from fleet.transport import windows as speech
from fleet.transport.windows import arguments
from tests.ops.board import flat
from tests.transport.test_conformance import NASTY

from .standin import LONGEST, split

WORDS = st.lists(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=8
)
HOSTILE = [
    *NASTY, "a\\", "a\\\\", 'a\\"b', '\\"', '"\\', "\\\\server\\share\\", "%PATH%", "%%", "^&|",
    "C:\\x y\\",
    "$(Get-Process)", "`n", "@'\nx\n'@", "\u2018x\u2019", "\U0001f600", "--%", ";exit", "x" * 9000,
]  # fmt: skip


@given(WORDS)
@example(HOSTILE)
def test_arguments_come_back_as_they_were(words: list[str]) -> None:
    assert split(arguments(words)) == words


@given(st.lists(st.text('\\" \ta', max_size=6), max_size=4))
def test_the_rules_are_those_of_the_standard_library_too(words: list[str]) -> None:
    assert split(subprocess.list2cmdline(words)) == words


def test_the_line_is_constant_short_and_without_syntax() -> None:
    line = speech.line()
    assert len(line) <= LONGEST
    assert re.fullmatch(r"[A-Za-z0-9+/=. -]+", line)
    code = base64.b64decode(line.rpartition(" ")[2]).decode("utf-16-le")
    assert "OpenStandardInput" in code
    assert "#" not in code


def fields(command: Command) -> list[str]:
    sent = flat(speech.spoken(command, [b"rest"]))
    length = int(sent[7:15])
    assert sent[:7] == b"fleet1 "
    assert sent[15:16] == b"\n"
    assert sent.endswith(b"rest")
    return sent[16 : 16 + length].decode("utf-8").split("\0")


@given(WORDS, WORDS)
@example(HOSTILE, HOSTILE)
def test_a_program_with_its_environment(words: list[str], values: list[str]) -> None:
    env = {f"V{n}": value for n, value in enumerate(values)}
    command = Command(("tool.exe", *words), env=env, cwd="C:/a b", unset=("HOME", "X"))
    kind, folder, program, line, count, *rest = fields(command)
    assert (kind, folder, program, count) == ("run", "C:/a b", "tool.exe", "2")
    assert split(line) == words
    assert rest[:2] == ["HOME", "X"]
    assert dict(zip(rest[2::2], rest[3::2], strict=True)) == env


@given(WORDS)
def test_a_script_of_ours_gets_its_arguments(words: list[str]) -> None:
    asked = Command(("probe",), call=Call("probe", tuple(words)))
    assert fields(asked) == ["script", text_of("probe.ps1"), *words]


@pytest.mark.parametrize("name", ["x.bat", "X.CMD", "a.cmd ", "b.bat."])
def test_a_batch_file_is_refused(name: str) -> None:
    """cmd.exe would run it and read its arguments by rules of its own."""
    with pytest.raises(InputError, match="batch file"):
        speech.spoken(Command((name, "%PATH%")), [])


def test_a_shell_script_is_refused_in_words() -> None:
    with pytest.raises(InputError, match="on a Windows device"):
        speech.spoken(script("echo"), [])


def test_too_long_a_line_is_refused() -> None:
    with pytest.raises(InputError, match="too long for Windows"):
        speech.spoken(Command(("tool.exe", "x" * 40_000)), [])


def test_half_a_character_is_refused() -> None:
    with pytest.raises(InputError, match="not valid UTF-8"):
        speech.spoken(Command(("tool.exe", "\ud800")), [])
