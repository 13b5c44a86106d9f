"""A result of the pre-flight."""

from __future__ import annotations

from dataclasses import asdict, dataclass


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

    def as_dict(self) -> dict[str, str]:
        """Plain data for JSON."""
        return asdict(self)
