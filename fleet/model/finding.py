"""A result of the pre-flight."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

_OF_DEVICES = re.compile(r"\bfleet (?:doctor|facts)(?=$| \(|[;,])")


@dataclass(frozen=True)
class Finding:
    """One rule that does not hold. `have` and `need` are the two values, `cure` the way out.

    `severity` is `refuse` (the deploy cannot work) or `warn`.
    """

    rule: str
    severity: str
    message: str
    have: str
    need: str
    cure: str
    source: str = ""

    @property
    def refuses(self) -> bool:
        """True when the deploy must not start."""
        return self.severity == "refuse"

    @property
    def told(self) -> str:
        """The message, with the two values where they are known."""
        found = "" if self.have in {"", "unknown"} else f"found: {self.have}; "
        return f"{self.message} ({found}needed: {self.need})"

    def cure_on(self, *hosts: str) -> str:
        """The cure; a command that examines devices names these."""
        return with_hosts(self.cure, hosts)


def with_hosts(text: str, hosts: Sequence[str]) -> str:
    """The text; a command in it that examines devices names these."""
    limits = "".join(f" --limit {shlex.quote(host)}" for host in hosts)
    return _OF_DEVICES.sub(lambda found: found[0] + limits, text)
