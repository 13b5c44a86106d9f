"""The base of all actions on the system of a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.model.command import Command
from fleet.model.plan import Action

QUICK_SECONDS = 60.0


@dataclass(frozen=True)
class SystemStep(Action):
    """An action as root: its literal commands and their undo.

    `seconds` is the deadline of each command. `staged` are contents that the deploy user writes to
    the device first: path → bytes. `refreshes` marks commands that only make other programs read
    changed files; in an undo they come last.
    """

    needs_root = True
    seconds = QUICK_SECONDS
    refreshes = False

    def staged(self) -> Mapping[str, bytes]:
        """Return the contents that the commands read, by path on the device."""
        return {}

    def undo_staged(self) -> Mapping[str, bytes]:
        """Return the contents that the undo reads, by path on the device."""
        return {}


@dataclass(frozen=True)
class Refresh(SystemStep):
    """An action that makes other programs read changed files."""

    refreshes = True

    def undo(self) -> tuple[Command, ...]:
        """Return the same commands, which run after the files are restored."""
        return self.commands()


def argv(*words: str) -> Command:
    """Return a command of these words."""
    return Command(words)
