"""What the doctor found: observations, ranked causes, a verdict. Plain data for every renderer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct, field

from fleet.model.cause import Cause, Fix, Twin
from fleet.model.slots import filled

# In this order of severity; the worst one is the verdict of a target. UNRECOGNISED is a log's:
# nothing that is known stands in it, neither of a failure nor of a success.
HEALTHY, ADVICE, PROBLEM, UNCHECKED = "healthy", "advice", "problem", "could-not-check"
UNRECOGNISED = "not-recognised"
OK, WARN, BAD, UNKNOWN = "ok", "warn", "bad", "unknown"


class Evidence(Struct, frozen=True):
    """One thing that was seen: a line of a log (`line` from 1) or the output of a command."""

    source: str
    text: str
    line: int = 0
    PLAIN: ClassVar[str] = "source text line?"


class Check(Struct, frozen=True):
    """One look at a layer. `status` is ok, warn, bad or unknown.

    `facts` are the words that the causes ask for (`node.cdsp: EACCES`); `text` is for people;
    `command` is what one would type to see it, `output` what was seen.
    """

    id: str
    layer: str
    status: str
    text: str
    facts: dict[str, str] = field(default_factory=dict)
    command: str = ""
    output: str = ""


class Remedy(Struct, frozen=True):
    """What fleet can do about the problem of a device, as it is shown, applied and undone.

    `operation` is provision, redeploy or rollback; "" where fleet can do nothing, and `refusal`
    then says why. `release` is the name of the release that it changes. `steps` say what
    changes, `commands` are the literal commands that need root.
    """

    cause: str = ""
    operation: str = ""
    release: str = ""
    steps: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    refusal: str = ""


class Ranked(Struct, frozen=True):
    """A cause with the confidence (0 to 1) that it is the one, and why.

    `platform` and the `facts` of the device choose among the fixes; "" and none when a log does
    not show it. `summary` is true where only the last line of a chain was seen. `slots` are the
    names that the lines carry (`library`: libomp.so), which title and fixes repeat; `agreeing`
    counts the signatures that speak for it. `plan` takes the place of the written fixes, and
    `check` that of the written command, where fleet has a plan for this device.
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
    # docs/doctor.md lists them
    PLAIN: ClassVar[
        str
    ] = """id=cause.id title confidence:3 layer=cause.layer severity=cause.severity
        evidence explanation fix=fixes verify slots tell_apart=twins sources=cause.sources"""

    @property
    def title(self) -> str:
        """What is wrong, with the names of the log."""
        return filled(self.cause.title, self.slots)

    @property
    def explanation(self) -> str:
        """Why, with the names of the log."""
        return filled(self.cause.explanation, self.slots)

    @property
    def verify(self) -> str:
        """How to see that it is cured."""
        return self.check or filled(self.cause.verify, self.slots)

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """The cures for the device that was seen."""
        if self.plan:
            return self.plan
        facts = {**self.slots, **self.facts}
        return tuple(fix.filled(self.slots) for fix in self.cause.fixes(self.platform, facts))

    @property
    def twins(self) -> tuple[Twin, ...]:
        """Causes that would show the same, with the command that tells."""
        return self.cause.twins


class Question(Struct, frozen=True):
    """What tells causes with the same log apart, or what is needed before one can be named.

    `command` is read-only; `yes` and `no` are the causes that the answers speak for ("" for none).
    A question without them asks for the output of the command.
    """

    id: str
    text: str
    command: str = ""
    yes: str = ""
    no: str = ""


class Diagnosis(Struct):
    """What is wrong with one target: a device or a file. `error` says why it was not checked.

    `questions` come in the order in which they should be asked. Of a log that is not recognised
    `understood` are numbers and names in words, `suspects` the lines that look like the failure.
    `parts` are raw texts by name for `--bundle`; `secrets` are (kind, word) that tell the device
    or its user, which no archive has. `remedy` is there for a device with a problem.
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
        """Whether a device was looked at, and no session was asked for."""
        return bool(self.checks) and not any(check.id == "session" for check in self.checks)

    @property
    def shown_verdict(self) -> str:
        """The verdict, which a look without a session cannot give in full."""
        return "nothing-wrong-seen" if self.verdict == HEALTHY and self.partly else self.verdict
