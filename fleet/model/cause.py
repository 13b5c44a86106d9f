"""A root cause of a failure, as data: its symptoms, its proof and its cure."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, ClassVar

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from fleet.model.slots import QUOTED, filled

# From the workstation down to the session: a fault in a layer makes the layers after it fail.
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
    """A pattern for one line of a log, in RE2 syntax, case-insensitive.

    `weight` (0 to 1) is the confidence that the line alone means the cause. `summary` marks the
    last line of a chain, such as 14001: it counts only if no other line of the log is more
    specific. `unless` and `needs` are patterns for any line of the same log. A pattern may have
    slots (`{library}`, fleet/triage/grammar.py); their text fills title, explanation and fixes.
    `holds` compares the numbers of slots in the matched line: `count < total`, `length > 16777216`.
    """

    match: str
    weight: Weight
    summary: bool = False
    unless: str = ""
    needs: str = ""
    holds: str = ""


class Predicate(Struct, frozen=True):
    """A fact of a live device that supports the cause: `fact` has one of `values`."""

    fact: str
    values: tuple[str, ...] = field(name="is")
    weight: Weight


class Condition(Struct, frozen=True):
    """A condition on a fact of a device."""

    fact: str
    values: tuple[str, ...] = field(name="is")

    def holds(self, facts: Mapping[str, str]) -> bool:
        """Return True if the fact matches one of the words, which are shell patterns:
        `libQnn*.so`.
        """
        return any(fnmatchcase(facts.get(self.fact) or "", word) for word in self.values)


class Twin(Struct, frozen=True):
    """Another cause with the same log, and the read-only command that distinguishes them."""

    cause: str
    command: str
    reading: str


class Fix(Struct, frozen=True):
    """A cure on one platform (`any` for all).

    `command` is literal, "" if a person must act; `where` is device or host. `apply` is the fleet
    operation that does it (provision, redeploy or rollback), "" if there is none. The cure does not
    apply if the fact or slot `unless` holds, and applies only if `when` holds. `changes` describes
    the effect, "" for none; `undo` says how to revert it. `steps` are those of a plan for one
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
    PLAIN: ClassVar[str] = "* -unless -when"  # the conditions were decided already

    def fits(self, platform: str, facts: Mapping[str, str]) -> bool:
        """Return True if the cure applies on this platform ("" is any) with these facts."""
        return (
            (not platform or self.platform in {platform, "any"})
            and not (self.unless and self.unless.holds(facts))
            and (self.when is None or self.when.holds(facts))
        )

    def filled(self, slots: Mapping[str, str]) -> Fix:
        """Return the fix with the slots of a log filled into its texts and its command."""
        return replace(
            self,
            title=filled(self.title, slots),
            command=filled(self.command, _pasteable(slots)),
            changes=filled(self.changes, slots),
            undo=filled(self.undo, slots),
        )


def _pasteable(slots: Mapping[str, str]) -> Mapping[str, str]:
    """Return the slots without quoted sentences, which could contain shell syntax."""
    return {name: word for name, word in slots.items() if name not in QUOTED}


class Example(Struct, frozen=True):
    """An example of the cause: lines of a log, or facts of a device.

    The cause must be among the first `top` of the diagnosis. `source` says who observed it.
    """

    log: str = ""
    facts: Mapping[str, str] | None = None
    top: Annotated[int, Meta(ge=1)] = 1
    source: str = ""


class Cause(Struct, frozen=True):
    """A root cause. `id` is the name of its file, `codes` are its error numbers.

    `severity` is error, or advice if nothing is broken. A matching signature of 0.9 or more rules
    out the causes in `excludes`. A line of `against` or a fact of `refuted` disproves the cause.

    A cause that any machine can have gets a low confidence unless a word of a `context`
    (fleet/data/context_words.yaml) is in the log. A `general` cause is a kind of plain sentence ("X
    was not found"): it is reported only if no other cause explains the log.
    A `symptom` has causes of its own (a crash, a session that does not open): a log does not prove
    it to be the cause, so a cause with earlier evidence is ranked before it.
    """

    id: str
    title: str
    layer: str
    explanation: str
    verify: str
    severity: str = "error"
    general: bool = False
    symptom: bool = False
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
        """Return True if a fact of the device disproves the cause."""
        return any(facts.get(fact.fact) in fact.values for fact in self.refuted)

    def is_denied(self, facts: Mapping[str, str]) -> bool:
        """Return True if every sign of the cause on the device was checked and is absent."""
        asked = [facts.get(predicate.fact) for predicate in self.probe]
        return bool(asked) and all(
            word not in {None, "unknown", *predicate.values}
            for word, predicate in zip(asked, self.probe, strict=True)
        )

    def with_fixes(self, fix: tuple[Fix, ...]) -> Cause:
        """Return the cause with other fixes."""
        return replace(self, fix=fix)

    def fixes(self, platform: str, facts: Mapping[str, str] | None = None) -> tuple[Fix, ...]:
        """Return the fixes for a platform ("" is any) and for a device with these facts."""
        return tuple(fix for fix in self.fix if fix.fits(platform, facts or {}))
