"""A root cause of a failure, as data: how it shows, how it is proven, how it is cured."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, ClassVar

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from fleet.model.slots import QUOTED, filled

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
Weight = Annotated[float, Meta(gt=0, lt=1)]


class Signature(Struct, frozen=True):
    """A pattern for one line of a log, in RE2 syntax, without regard to case.

    `weight` (0 to 1) is how surely the line alone means the cause. `summary` marks the last
    line of a chain, such as 14001: it counts only where no other line of the log says more.
    `unless` and `needs` are patterns for any line of the same log. A pattern may hold slots
    (`{library}`, fleet/triage/grammar.py); what stood there fills title, explanation and fixes.
    `holds` compares the numbers of slots in the matched line: `count < total`, `length > 16777216`.
    """

    match: str
    weight: Weight
    summary: bool = False
    unless: str = ""
    needs: str = ""
    holds: str = ""


class Predicate(Struct, frozen=True):
    """A fact of a live device that speaks for the cause: `fact` has one of `values`."""

    fact: str
    values: tuple[str, ...] = field(name="is")
    weight: Weight


class Condition(Struct, frozen=True):
    """A fact of a device and the words of it that decide."""

    fact: str
    values: tuple[str, ...] = field(name="is")

    def holds(self, facts: Mapping[str, str]) -> bool:
        """Return True if the fact fits a word, which is a pattern of a shell: `libQnn*.so`."""
        return any(fnmatchcase(facts.get(self.fact) or "", word) for word in self.values)


class Twin(Struct, frozen=True):
    """Another cause with the same log, and the read-only command that tells them apart."""

    cause: str
    command: str
    reading: str


class Fix(Struct, frozen=True):
    """A cure on one platform (`any` for all).

    `command` is literal, "" where only a person can act; `where` is device or host.
    `apply` names the operation of fleet that does it: provision, redeploy or rollback; "" when
    none does. `unless` is a fact of the device, or a slot of the log, and the words with which it
    is no cure; `when` is one without which it is none. `changes` says what is other afterwards, ""
    for nothing; `undo` how that is taken back. `steps` are those of a plan that was made for one
    device.
    """

    platform: str
    title: str
    command: str = ""
    where: str = "device"
    needs_root: bool = False
    reversible: bool = True
    reboot: bool = False
    apply: str = ""
    unless: Condition | None = None
    when: Condition | None = None
    changes: str = ""
    undo: str = ""
    steps: tuple[str, ...] = ()
    PLAIN: ClassVar[str] = "* -unless -when"  # conditions were decided already

    def fits(self, platform: str, facts: Mapping[str, str]) -> bool:
        """Whether it is a cure on this platform ("" is any), where these words are known."""
        return (
            (not platform or self.platform in {platform, "any"})
            and not (self.unless and self.unless.holds(facts))
            and (self.when is None or self.when.holds(facts))
        )

    def filled(self, slots: Mapping[str, str]) -> Fix:
        """With the names of a log in its words and its command."""
        return replace(
            self,
            title=filled(self.title, slots),
            command=filled(self.command, _pasteable(slots)),
            changes=filled(self.changes, slots),
            undo=filled(self.undo, slots),
        )


def _pasteable(slots: Mapping[str, str]) -> Mapping[str, str]:
    """Return the slots without quoted sentences, which could hold what a shell obeys."""
    return {name: word for name, word in slots.items() if name not in QUOTED}


class Example(Struct, frozen=True):
    """What the cause looks like: lines of a log or facts of a device.

    The cause must be among the first `top` of the diagnosis; `source` says who saw it.
    """

    log: str = ""
    facts: Mapping[str, str] | None = None
    top: Annotated[int, Meta(ge=1)] = 1
    source: str = ""


class Cause(Struct, frozen=True):
    """One root cause. `id` is the name of its file, `codes` the numbers under which it shows.

    `severity` is error, or advice where nothing is broken. A signature of 0.9 or more that
    matches rules out the causes of `excludes`; a line of `against` and a fact of `refuted` prove
    the opposite. What any machine can have is named with low confidence unless a word of a
    `context` (fleet/data/context_words.yaml) stands in the log. A `general` cause is a kind of
    plain sentence ("X was not found"): it is named only where no other cause explains the log.
    """

    id: str
    title: str
    layer: str
    explanation: str
    verify: str
    severity: str = "error"
    general: bool = False
    platforms: tuple[str, ...] = PLATFORMS
    codes: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    signatures: tuple[Signature, ...] = ()
    probe: tuple[Predicate, ...] = ()
    excludes: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    refuted: tuple[Condition, ...] = ()
    twins: tuple[Twin, ...] = ()
    fix: tuple[Fix, ...] = ()
    sources: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()

    def is_refuted(self, facts: Mapping[str, str]) -> bool:
        """Whether a fact of the device proves that it is not the one."""
        return any(facts.get(fact.fact) in fact.values for fact in self.refuted)

    def is_denied(self, facts: Mapping[str, str]) -> bool:
        """Whether all that could be seen of it on the device was looked at, and nothing was."""
        asked = [facts.get(predicate.fact) for predicate in self.probe]
        return bool(asked) and all(
            word not in {None, "unknown", *predicate.values}
            for word, predicate in zip(asked, self.probe, strict=True)
        )

    def with_fixes(self, fix: tuple[Fix, ...]) -> Cause:
        """Return the cause with other cures."""
        return replace(self, fix=fix)

    def fixes(self, platform: str, facts: Mapping[str, str] | None = None) -> tuple[Fix, ...]:
        """The cures for a platform ("" is any) and a device of which these facts are known."""
        return tuple(fix for fix in self.fix if fix.fits(platform, facts or {}))
