"""What a pre-flight rule is: an id, a source, and a function over one `Case`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

from fleet.model.bundle import Bundle, ContextBinary
from fleet.model.facts import Facts
from fleet.model.finding import Finding
from fleet.model.runtime import Library, Runtime
from fleet.runtimes.select import Selection
from fleet.runtimes.targets import TargetFacts, target_facts

REFUSE, WARN = "refuse", "warn"


@dataclass(frozen=True)
class Case:
    """All that a rule may look at: one bundle, one runtime, one device."""

    bundle: Bundle
    runtime: Runtime
    selection: Selection
    target: str
    facts: Facts
    bytes_to_send: int | None = None
    files_to_send: int | None = None

    @cached_property
    def target_facts(self) -> TargetFacts:
        """What is known of the target build."""
        return target_facts(self.target)

    @property
    def has_dsp(self) -> bool:
        """False on the emulator, and for a run off the NPU: no FastRPC, no stub, no skel."""
        return self.selection.npu and self.target_facts.kind == "device"

    @property
    def has_npu(self) -> bool:
        """A real target: libraries with a stub, whatever the system."""
        return self.selection.npu and self.target_facts.kind != "emulator"

    @property
    def whole_contexts(self) -> tuple[ContextBinary, ...]:
        """Context binaries that could be read; damaged ones have a rule of their own."""
        return tuple(item for item in self.bundle.contexts if not item.problem)

    @property
    def libraries(self) -> tuple[Library, ...]:
        """The runtime's files that go to the device; all of them when none was chosen."""
        chosen = {item.source for item in self.selection.files}
        mine = [
            library
            for library in self.runtime.libraries
            if self.runtime.root / library.path in chosen
        ]
        return tuple(mine) or self.runtime.libraries


@dataclass(frozen=True)
class Fault:
    """One way in which a rule does not hold. `severity` None means the rule's own."""

    message: str
    have: str
    need: str
    cure: str
    severity: str | None = None


Check = Callable[[Case], Iterable[Fault]]


@dataclass(frozen=True)
class Rule:
    """A rule: `id` in findings and docs, `severity` by default, `source` of the fact."""

    id: str
    severity: str
    source: str
    check: Check

    @property
    def text(self) -> str:
        """First line of the function's docstring: what the rule asks for."""
        return (self.check.__doc__ or "").strip().split("\n", 1)[0]

    def findings(self, case: Case) -> Iterator[Finding]:
        """The rule's findings for one case."""
        for fault in self.check(case):
            yield Finding(
                rule=self.id,
                severity=fault.severity or self.severity,
                message=fault.message,
                have=fault.have,
                need=fault.need,
                cure=fault.cure,
                source=self.source,
            )


def place_of(facts: Facts) -> str:
    """Return where a command of a cure is typed, as the end of its sentence."""
    return (
        "on this computer, whose libraries this lab board uses" if facts.local else "on the device"
    )


def install(facts: Facts, package: str, library: str = "") -> str:
    """Return the cure for a package that is missing. A phone has no packages: its firmware
    or the release brings a library.
    """
    if facts.android is not None:
        return f"name a copy of {library or package} under `run: libraries:` in the playbook"
    return f"sudo apt install {package} {place_of(facts)}"


def rule(name: str, severity: str, source: str) -> Callable[[Check], Rule]:
    """Make a `Rule` of a function."""
    return lambda check: Rule(name, severity, source, check)


def rules_of(module: ModuleType) -> tuple[Rule, ...]:
    """The rules that a module defines, in its order: `@rule` is all that a new one needs."""
    own = (value for value in vars(module).values() if isinstance(value, Rule))
    return tuple(found for found in own if found.check.__module__ == module.__name__)


def unknown(what: str, need: str, cure: str) -> Fault:
    """A warning: a value is unknown, so the rule could not be checked."""
    return Fault(f"fleet could not check {what}", "unknown", need, cure, WARN)
