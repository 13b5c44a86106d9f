"""The rendered line means the same in every login shell."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.model.command import Command
from fleet.transport.quote import render
from tests import needs

from .test_conformance import NASTY

# csh cannot hold a newline in quotes, whatever is done; fleet's own scripts have newlines.
SHELLS = ("dash", "bash", "busybox", "mksh", "zsh", "fish")


def argv_of(shell: str) -> list[str]:
    found = needs.tool(shell)
    return [found, "sh"] if shell == "busybox" else [found]


def run(shell: str, command: Command) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*argv_of(shell), "-c", render(command)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_words_arrive_as_they_are(shell: str) -> None:
    done = run(shell, Command(("printf", "%s\\0", *NASTY)))
    assert done.stdout.split("\0")[:-1] == NASTY, done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_a_link_that_tells_signals_needs_no_shell_around(shell: str) -> None:
    line = render(Command(("printf", "%s\\0", *NASTY)), bare=True)
    done = subprocess.run([*argv_of(shell), "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.split("\0")[:-1] == NASTY
    assert not line.startswith("sh ")
    for one in (
        Command(("true",), cwd="/"),
        Command(("true",), env={"A": "1"}),
        Command(("true",), unset=("A",)),
    ):
        assert render(one, bare=True) == render(one)


@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=30)
@given(word=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_any_word_arrives_as_it_is(shell: str, word: str) -> None:
    done = subprocess.run(
        [*argv_of(shell), "-c", render(Command(("printf", "%s", word), env={"A": word}))],
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.stdout.decode("utf-8", "surrogateescape") == word


@pytest.mark.parametrize("shell", SHELLS)
def test_environment_folder_and_status(shell: str) -> None:
    probe = Command(
        ("sh", "-c", 'printf "%s|%s|%s" "$PWD" "$A" "${HOME-gone}"; exit 7'),
        env={"A": "it's; $(id)"},
        cwd="/usr",
        unset=("HOME",),
    )
    done = run(shell, probe)
    assert (done.stdout, done.returncode) == ("/usr|it's; $(id)|gone", 7)
