"""The result of the doctor as plain data: observations, ranked causes, a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from fleet.model.cause import Cause, Fix, Twin
from fleet.model.slots import filled

# In order of severity; the worst is the verdict of a target. UNRECOGNISED is for logs that contain
# no known line, neither of a failure nor of a success.
HEALTHY, ADVICE, PROBLEM, UNCHECKED = "healthy", "advice", "problem", "could-not-check"
UNRECOGNISED = "not-recognised"
OK, WARN, BAD, UNKNOWN = "ok", "warn", "bad", "unknown"


class Evidence(Struct, frozen=True):
    """An observation: a line of a log (`line` counts from 1) or the output of a command."""

    source: str
    text: str
    line: int = 0
    PLAIN: ClassVar[str] = "source text line?"


class Check(Struct, frozen=True):
    """A check of one layer. `status` is ok, warn, bad or unknown.

    `facts` are the words that causes refer to (`node.cdsp: EACCES`), `text` is for people.
    `command` is what a person would type to see it, `output` what it printed.
    """

    id: str
    layer: str
    status: str
    text: str
    facts: dict[str, str] = field(default_factory=dict)
    command: str = ""
    output: str = ""


class Remedy(Struct, frozen=True):
    """The change that fleet offers for a device's problem, as it is shown, applied and undone.

    `operation` is provision, redeploy or rollback, or "" if fleet offers none; `refusal` then has
    the reason. `release` is the name of the release that it changes. `steps` are its changes,
    `commands` are the literal commands that need root.
    """

    cause: str = ""
    operation: str = ""
    release: str = ""
    steps: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    refusal: str = ""


class Ranked(Struct, frozen=True):
    """A cause with its confidence (0 to 1) and its evidence.

    `platform` and the `facts` of the device select the fixes; both are empty if a log does not
    contain them. `summary` is True if only the last line of a chain matched. `slots` are names in
    the lines (`library`: libomp.so), which title and fixes repeat. `agreeing` counts the matching
    signatures. If fleet has a plan for this device, `plan` replaces the written fixes, and `check`
    the written command.
    """

    cause: Cause
    confidence: float
    evidence: tuple[Evidence, ...] = ()
    platform: str = ""
    summary: bool = False
    facts: Mapping[str, str] = field(default_factory=dict)
    slots: Mapping[str, str] = field(default_factory=dict)
    agreeing: int = 1
    plan: tuple[Fix, ...] = ()
    check: str = ""
    # docs/doctor.md lists the members
    PLAIN: ClassVar[
        str
    ] = """id=cause.id title confidence:3 layer=cause.layer severity=cause.severity
        evidence explanation fix=fixes verify slots tell_apart=twins sources=cause.sources"""

    @property
    def title(self) -> str:
        """The problem, with the names from the log."""
        return filled(self.cause.title, self.slots)

    @property
    def explanation(self) -> str:
        """The explanation, with the names from the log."""
        return filled(self.cause.explanation, self.slots)

    @property
    def verify(self) -> str:
        """The command that shows whether the problem is cured."""
        return self.check or filled(self.cause.verify, self.slots)

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """The fixes for this device."""
        if self.plan:
            return self.plan
        facts = {**self.slots, **self.facts}
        return tuple(fix.filled(self.slots) for fix in self.cause.fixes(self.platform, facts))

    @property
    def twins(self) -> tuple[Twin, ...]:
        """Other causes with the same symptoms, each with the command that distinguishes them."""
        return tuple(
            replace(twin, command=filled(twin.command, self.slots)) for twin in self.cause.twins
        )


class Leaf(Struct, frozen=True):
    """An answer to a question: a cause, what holds if the cause is right, and a check of that."""

    cause: str
    holds: str
    command: str = ""
    PLAIN: ClassVar[str] = "cause holds command?"


class Question(Struct, frozen=True):
    """A question that distinguishes causes with the same log, or asks for missing evidence.

    `command` is read-only. `leaves` are the causes that an answer can name. A question without
    leaves asks for the output of the command.
    """

    id: str
    text: str
    command: str = ""
    leaves: tuple[Leaf, ...] = ()


class Diagnosis(Struct):
    """The diagnosis of one target: a device or a file. `error` says why it was not checked.

    `questions` are in the order in which to ask them. For a log that is not recognised,
    `understood` explains its numbers and names, and `suspects` are the lines that look like the
    failure. `parts` are raw texts by name for `--bundle`. `secrets` are (kind, word) pairs that
    identify the device or its user; they are left out of archives. `remedy` is set for a device
    with a problem.
    """

    target: str
    verdict: str
    causes: tuple[Ranked, ...] = ()
    checks: tuple[Check, ...] = ()
    emulated: bool = False
    notes: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()
    understood: tuple[str, ...] = ()
    suspects: tuple[Evidence, ...] = ()
    error: dict[str, object] | None = None
    remedy: Remedy | None = None
    seconds: float = 0.0
    round_trips: int = 0
    parts: dict[str, str] = field(default_factory=dict)
    secrets: tuple[tuple[str, str], ...] = ()
    PLAIN: ClassVar[str] = "* verdict=shown_verdict seconds:3 -parts -secrets"

    @property
    def partly(self) -> bool:
        """True if a device was checked without opening a session."""
        return bool(self.checks) and not any(check.id == "session" for check in self.checks)

    @property
    def shown_verdict(self) -> str:
        """The verdict as shown. A check without a session cannot say `healthy`."""
        return "nothing-wrong-seen" if self.verdict == HEALTHY and self.partly else self.verdict
