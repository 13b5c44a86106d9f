"""What all actions on the system of a device share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.model.command import Command
from fleet.model.plan import Action

QUICK_SECONDS = 60.0


@dataclass(frozen=True)
class SystemStep(Action):
    """An action as root. It is its literal commands, and the way back.

    `seconds` is the deadline of each command. `staged` are contents that the deploy user
    puts on the device before: path → bytes. `refreshes` marks commands that only make other
    programs read changed files; in an undo they come last.
    """

    needs_root = True
    seconds = QUICK_SECONDS
    refreshes = False

    def staged(self) -> Mapping[str, bytes]:
        """Contents that the commands read, by their path on the device."""
        return {}

    def undo_staged(self) -> Mapping[str, bytes]:
        """Contents that the undo reads."""
        return {}


@dataclass(frozen=True)
class Refresh(SystemStep):
    """Lets other programs read changed files anew."""

    refreshes = True

    def undo(self) -> tuple[Command, ...]:
        """The same, after the files are as before."""
        return self.commands()


def argv(*words: str) -> Command:
    """A command of these words."""
    return Command(words)
