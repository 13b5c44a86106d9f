"""The one place where a command becomes shell text."""

from __future__ import annotations

import shlex

from fleet.model.command import Command

# Constant text; everything that varies is a positional argument. `"$@"` without exec keeps
# this shell alive, so that a signal comes back as 128+N: paramiko drops exit-signal.
_WRAPPER = 'cd -- "$1" || exit 126; shift; %s"$@"; exit "$?"'


def render(command: Command, *, bare: bool = False) -> str:
    """One line that any login shell (sh, bash, zsh, fish, mksh) runs as exactly `command`.

    The line is a simple command of quoted words. An exit status of 126 with a message of
    `cd` says that the folder does not exist. `bare`: for a link that tells a signal by itself;
    what needs no folder and no variables then needs no shell around it.
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
    """A simple command of these words."""
    return " ".join(map(_quote, words))


def _quote(word: str) -> str:
    """shlex.quote, with each backslash in double quotes: fish escapes inside single ones."""
    return shlex.quote(word).replace("\\", "'\"\\\\\"'")
