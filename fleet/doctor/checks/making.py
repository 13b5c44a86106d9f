"""Results of one check, in few words."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.model.diagnosis import BAD, OK, UNKNOWN, WARN, Check

Facts = dict[str, str]


@dataclass(frozen=True)
class Maker:
    """Makes the results of the check `id` in `layer`.

    `text` is for people, `facts` are the words that causes ask for, `command` what one would
    type to see it, `output` what was seen.
    """

    id: str
    layer: str

    def ok(
        self, text: str, facts: Facts | None = None, command: str = "", output: str = ""
    ) -> Check:
        """Nothing is wrong."""
        return Check(self.id, self.layer, OK, text, facts or {}, command, output)

    def warn(self, text: str, facts: Facts, command: str, output: str) -> Check:
        """Nothing is broken now, and it may be a reason once something is."""
        return Check(self.id, self.layer, WARN, text, facts, command, output)

    def bad(self, text: str, facts: Facts, command: str, output: str) -> Check:
        """This is broken."""
        return Check(self.id, self.layer, BAD, text, facts, command, output)

    def unknown(self, text: str, facts: Facts | None = None, command: str = "") -> Check:
        """It could not be seen; nothing is derived from it."""
        return Check(self.id, self.layer, UNKNOWN, text, facts or {}, command)
