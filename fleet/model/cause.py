"""A root cause of a failure, as data: how it shows, how it is proven, how it is cured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# From the workstation down to the session: a fault in one layer makes those after it fail.
LAYERS = (
    "host",
    "link",
    "os",
    "user",
    "nodes",
    "library",
    "daemon",
    "dsp",
    "runtime",
    "bundle",
    "session",
)
PLATFORMS = ("linux", "android", "windows")


@dataclass(frozen=True)
class Signature:
    """A pattern for one line of a log, in RE2 syntax, without regard to case.

    `weight` (0 to 1) is how surely the line alone means the cause. `summary` marks the last
    line of a chain, such as 14001: it counts only where no other line of the log says more.
    `unless` and `needs` are patterns for any line of the same log.
    """

    match: str
    weight: float
    summary: bool = False
    unless: str = ""
    needs: str = ""


@dataclass(frozen=True)
class Predicate:
    """A fact of a live device that speaks for the cause: `fact` has one of `values`."""

    fact: str
    values: tuple[str, ...]
    weight: float


@dataclass(frozen=True)
class Twin:
    """Another cause with the same log, and the read-only command that tells them apart."""

    cause: str
    command: str
    reading: str


@dataclass(frozen=True)
class Fix:
    """A cure on one platform (`any` for all).

    `command` is literal, "" where only a person can act; `where` is device or host.
    `apply` names the operation of fleet that does it: provision, redeploy or rollback; "" when
    none does. `unless` is a fact of the device and the words with which it is no cure.
    """

    platform: str
    title: str
    command: str
    where: str = "device"
    needs_root: bool = False
    reversible: bool = True
    reboot: bool = False
    apply: str = ""
    unless: tuple[str, tuple[str, ...]] | None = None


@dataclass(frozen=True)
class Example:
    """What the cause looks like: lines of a log or facts of a device.

    The cause must be among the first `top` of the diagnosis; `source` says who saw it.
    """

    log: str = ""
    facts: Mapping[str, str] | None = None
    top: int = 1
    source: str = ""


@dataclass(frozen=True)
class Cause:
    """One root cause. `id` is the name of its file, `codes` the numbers under which it shows.

    `severity` is error, or advice where nothing is broken. A signature of 0.9 or more that
    matches rules out the causes of `excludes`.
    """

    id: str
    title: str
    layer: str
    explanation: str
    verify: str
    severity: str = "error"
    platforms: tuple[str, ...] = PLATFORMS
    codes: tuple[str, ...] = ()
    signatures: tuple[Signature, ...] = ()
    probe: tuple[Predicate, ...] = ()
    excludes: tuple[str, ...] = ()
    twins: tuple[Twin, ...] = ()
    fix: tuple[Fix, ...] = ()
    sources: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()

    def fixes(self, platform: str, facts: Mapping[str, str] | None = None) -> tuple[Fix, ...]:
        """The cures for a platform ("" is any) and a device of which these facts are known."""
        known = facts or {}
        return tuple(
            fix
            for fix in self.fix
            if (not platform or fix.platform in {platform, "any"})
            and (fix.unless is None or known.get(fix.unless[0]) not in fix.unless[1])
        )
