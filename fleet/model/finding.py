"""A result of the pre-flight."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

_OF_DEVICES = re.compile(r"\bfleet (?:doctor|facts)(?=$| \(|[;,])")


@dataclass(frozen=True)
class Finding:
    """A violated rule. `have` and `need` are the two values, `cure` says what to do.

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
        """True if the deploy must not start."""
        return self.severity == "refuse"

    @property
    def summary(self) -> str:
        """The message, with the two values if they are known."""
        have = "" if self.have in {"", "unknown"} else f"found: {self.have}; "
        return f"{self.message} ({have}needed: {self.need})"

    def cure_on(self, *hosts: str) -> str:
        """Return the cure. A command in it that examines devices gets these hosts."""
        return with_hosts(self.cure, hosts)


def with_hosts(text: str, hosts: Sequence[str]) -> str:
    """Return the text. A command in it that examines devices gets these hosts."""
    limits = "".join(f" --limit {shlex.quote(host)}" for host in hosts)
    return _OF_DEVICES.sub(lambda match: match[0] + limits, text)
