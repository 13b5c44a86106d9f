"""The only module that turns a command into shell text."""

from __future__ import annotations

import shlex

from fleet.model.command import Command

# Constant text; all variable values are positional arguments. `"$@"` without exec keeps this shell
# alive, so that a signal is reported as 128+N. paramiko ignores exit-signal.
_WRAPPER = 'cd -- "$1" || exit 126; shift; %s"$@"; exit "$?"'


def render(command: Command, *, bare: bool = False) -> str:
    """Return one line that any login shell (sh, bash, zsh, fish, mksh) runs as exactly `command`.

    The line is a simple command of quoted words. An exit status of 126 with a message of `cd` means
    that the folder does not exist. `bare` is for a link that reports signals itself: a command
    without folder and variables then needs no shell around it.
    """
    if bare and not (command.cwd or command.env or command.unset):
        return quoted(*command.argv)
    unset = "".join(f"unset {name}; " for name in command.unset)
    wrapper = _WRAPPER % unset
    env = ["env", *(f"{name}={value}" for name, value in command.env.items())]
    words = ["sh", "-c", wrapper, "fleet", command.cwd or "."]
    words += env if command.env else []
    return quoted(*words, *command.argv)


def quoted(*words: str) -> str:
    """Return a simple command of these words."""
    return " ".join(map(_quote, words))


def _quote(word: str) -> str:
    """Quote a word with shlex. Double-quote each backslash, because fish escapes in single
    quotes.
    """
    return shlex.quote(word).replace("\\", "'\"\\\\\"'")
