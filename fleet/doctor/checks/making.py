"""The results of one check, in few words."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.model.diagnosis import BAD, OK, UNKNOWN, WARN, Check

Facts = dict[str, str]


@dataclass(frozen=True)
class Maker:
    """A maker of the results of the check `id` in `layer`.

    `text` is for people, and `facts` are the words that causes use. `command` is the command that
    shows the finding, and `output` its output.
    """

    id: str
    layer: str

    def ok(
        self, text: str, facts: Facts | None = None, command: str = "", output: str = ""
    ) -> Check:
        """Return the result OK with the `command` that a reader can repeat and its `output`."""
        return Check(self.id, self.layer, OK, text, facts or {}, command, output)

    def warn(self, text: str, facts: Facts, command: str, output: str) -> Check:
        """Return a warning: nothing is broken now, but this may be the reason once something is."""
        return Check(self.id, self.layer, WARN, text, facts, command, output)

    def bad(self, text: str, facts: Facts, command: str, output: str) -> Check:
        """Return the result BAD with the `command` that a reader can repeat and its `output`."""
        return Check(self.id, self.layer, BAD, text, facts, command, output)

    def unknown(
        self, text: str, facts: Facts | None = None, command: str = "", output: str = ""
    ) -> Check:
        """Return a result for something that could not be read; nothing is derived from it."""
        return Check(self.id, self.layer, UNKNOWN, text, facts or {}, command, output)
