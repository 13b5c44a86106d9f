"""The shell that runs one command after another, and the marks around what each says."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Iterable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fleet.model.command import Command, script
from fleet.transport import loop
from fleet.transport.loop import Framed, request
from tests import needs

from .test_conformance import NASTY

SHELLS = ["dash", "bash", "mksh", "zsh", "ksh", "busybox sh"]
WORD = b"0b0f6c5e-1111-2222-3333-444455556666"
HEAD = b"\x1efleet " + WORD


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    words = str(request.param).split()
    needs.tool(words[0])
    return words


def ran(shell: list[str], first: Command, data: bytes) -> subprocess.CompletedProcess[bytes]:
    """The line's loop in that shell."""
    return subprocess.run(
        [*shell, "-c", loop._LOOP, "fleet", *first.argv],
        input=data,
        capture_output=True,
        check=False,
        timeout=60,
    )


def parts(data: bytes, number: int, *, last: bool = False) -> tuple[bytes, int | None]:
    """What command `number` said in a whole stream."""
    said = bytearray()
    frame = Framed(said.extend, number, last=last)
    frame(data)
    frame.close()
    return bytes(said), frame.status


def test_each_has_its_words_its_status_and_its_two_streams(shell: list[str]) -> None:
    words = [*NASTY, "\udcff\udc80"]
    done = ran(
        shell,
        script("echo out; echo err >&2; exit 7"),
        request(1, Command(("printf", "%s|", *words)))
        + request(2, script("kill -SEGV $$"))
        + request(3, Command(("exit", "5")))
        + request(4, script("cat; exit 9"))
        + request(5, script("printf %s $1 >&2; cat; exit 6", "a\nb"), last=True)
        + b"all\0the\nrest",
    )
    assert parts(done.stdout, 0) == (b"out\n", 7)
    assert parts(done.stderr, 0) == (b"err\n", 7)
    assert parts(done.stdout, 1) == ("|".join([*words, ""]).encode("utf-8", "surrogateescape"), 0)
    assert parts(done.stdout, 2) == (b"", 128 + 11)
    assert parts(done.stdout, 3) == (b"", 5), "a word that a shell does itself ends no loop"
    assert parts(done.stdout, 4) == (b"", 9), "nothing of what comes next was read"
    assert parts(done.stdout, 5, last=True) == (b"all\0the\nrest", None)
    assert parts(done.stderr, 5, last=True) == (b"ab", None)
    assert done.returncode == 6


@pytest.mark.parametrize("login", [*SHELLS, "fish"])
def test_any_login_shell_starts_it(login: str) -> None:
    words = login.split()
    needs.tool(words[0])
    line = loop.line(Command(("printf", "%s|", *NASTY)))
    done = subprocess.run(
        [*words, "-c", line],
        input=request(1, script("cat; exit 8"), last=True) + b"in",
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert parts(done.stdout, 0) == ("|".join([*NASTY, ""]).encode(), 0)
    assert parts(done.stdout, 1, last=True) == (b"in", None)
    assert done.returncode == 8


def test_of_a_request_that_was_cut_nothing_is_run(shell: list[str]) -> None:
    whole = request(1, script("echo a\necho b\necho c"))
    for count in range(0, len(whole), 1 if shell == ["dash"] else 17):
        done = ran(shell, Command(("true",)), whole[:count])
        assert done.stdout.count(b"\n") == 2, (count, done.stdout)
        assert done.returncode == 0


def test_without_input_it_is_the_command_and_nothing_else() -> None:
    """A server that gives none: the status comes as that of the channel as well."""
    done = ran(["sh"], script("echo x; exit 4"), b"")
    assert parts(done.stdout, 0) == (b"x\n", 4)
    assert done.returncode == 4


def test_no_program_is_told_the_word() -> None:
    done = ran(["sh"], script("env; cat /proc/$$/cmdline /proc/$PPID/cmdline"), b"")
    word = done.stdout.split(b"\n")[0].removeprefix(b"\x1efleet ")
    assert len(word) == len(WORD)
    assert word not in parts(done.stdout, 0)[0]


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


MARKS = st.sampled_from(
    [b"\x1e", b"\x1efleet ", HEAD[:-1], HEAD[:-1] + b"7 1 0\n", b"\n", b"1 0\n"]
)
SAID = st.lists(st.binary(max_size=9) | MARKS, max_size=12).map(b"".join)
NUMBERS = st.integers(0, 12)


@given(SAID, NUMBERS, st.integers(0, 255), st.lists(st.integers(0, 999), max_size=20))
def test_any_output_in_any_pieces(said: bytes, number: int, status: int, places: list[int]) -> None:
    if HEAD in said:
        return
    begin = HEAD + b"\n" if not number else b"noise" + HEAD + b" %d\n" % number
    stream = begin + said + HEAD + b" %d %d\n" % (number, status)
    taken = bytearray()
    frame = Framed(taken.extend, number, WORD if number else b"")
    ended = [frame(chunk) for chunk in cut(stream, places) if chunk]
    assert (bytes(taken), frame.status, frame.spilled) == (said, status, False)
    assert ended[-1]
    frame(b"more")
    assert frame.spilled


@given(SAID, st.lists(st.integers(0, 999), max_size=20))
def test_what_is_no_mark_is_held_back_for_no_longer_than_it_may_be_one(
    said: bytes, places: list[int]
) -> None:
    taken = bytearray()
    frame = Framed(taken.extend)
    for chunk in cut(HEAD + b"\n" + said + b"x", places):
        frame(chunk)
    assert bytes(taken) == said + b"x"


@given(SAID)
def test_a_channel_without_a_loop_is_passed_on_as_it_is(said: bytes) -> None:
    assume(not re.search(rb"\x1efleet [0-9a-f-]{36}\n", said))  # that is a loop
    taken = bytearray()
    frame = Framed(taken.extend)
    frame(said)
    frame.close()
    assert bytes(taken) == said
    assert not frame.begun
