"""Pre-flight rules: an id, a source, and a function that checks one `Case`."""

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
    """The input of a rule: one bundle, one runtime, one device."""

    bundle: Bundle
    runtime: Runtime
    selection: Selection
    target: str
    facts: Facts
    bytes_to_send: int | None = None
    files_to_send: int | None = None

    @cached_property
    def target_facts(self) -> TargetFacts:
        """The known facts of the target build."""
        return target_facts(self.target)

    @property
    def has_dsp(self) -> bool:
        """False on the emulator and for a run without the NPU: no FastRPC, no stub, no skel."""
        return self.selection.npu and self.target_facts.kind == "device"

    @property
    def has_npu(self) -> bool:
        """True for a real target, whose libraries have a stub, on any system."""
        return self.selection.npu and self.target_facts.kind != "emulator"

    @property
    def whole_contexts(self) -> tuple[ContextBinary, ...]:
        """The context binaries that could be read. Damaged binaries have their own rule."""
        return tuple(item for item in self.bundle.contexts if not item.problem)

    @property
    def libraries(self) -> tuple[Library, ...]:
        """The runtime's files that go to the device, or all files if none was selected."""
        chosen = {item.source for item in self.selection.files}
        mine = [
            library
            for library in self.runtime.libraries
            if self.runtime.root / library.path in chosen
        ]
        return tuple(mine) or self.runtime.libraries


@dataclass(frozen=True)
class Fault:
    """A violation of a rule. A `severity` of None means the severity of the rule."""

    message: str
    have: str
    need: str
    cure: str
    severity: str | None = None


Check = Callable[[Case], Iterable[Fault]]


@dataclass(frozen=True)
class Rule:
    """A rule: `id` in findings and docs, default `severity`, and `source` of the fact."""

    id: str
    severity: str
    source: str
    check: Check

    @property
    def text(self) -> str:
        """The condition of the rule, which is the first line of the function's docstring."""
        return (self.check.__doc__ or "").strip().split("\n", 1)[0]

    def findings(self, case: Case) -> Iterator[Finding]:
        """Yield a finding for each violation of the condition by the case."""
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
    """Return the place to type the command of a cure, as the end of its sentence."""
    return (
        "on this computer, whose libraries this lab board uses" if facts.local else "on the device"
    )


def install(facts: Facts, package: str, library: str = "") -> str:
    """Return the cure for a missing package.

    A phone has no packages: a library comes from its firmware or from the release.
    """
    if facts.android is not None:
        return f"name a copy of {library or package} under `run: libraries:` in the playbook"
    return f"sudo apt install {package} {place_of(facts)}"


def rule(name: str, severity: str, source: str) -> Callable[[Check], Rule]:
    """Make a `Rule` of a function that yields violations of the condition in its docstring."""
    return lambda check: Rule(name, severity, source, check)


def rules_of(module: ModuleType) -> tuple[Rule, ...]:
    """Return the rules that a module defines, in its order. A new rule needs only the decorator
    `@rule`.
    """
    own = (value for value in vars(module).values() if isinstance(value, Rule))
    return tuple(item for item in own if item.check.__module__ == module.__name__)


def unknown(what: str, need: str, cure: str) -> Fault:
    """Return a warning that a value is unknown, so that the rule could not be checked."""
    return Fault(f"fleet could not check {what}", "unknown", need, cure, WARN)
