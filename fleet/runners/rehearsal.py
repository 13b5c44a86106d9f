"""The start of a bundle by its default runner, without a device: what is missing for it, and why.

`fleet bundle inspect` prints the result, so that a user does not need a playbook and a board to see
the first problems. A plan checks the same again, and more, for a device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fleet.bundles.closure import Launch, SentFiles, foreign
from fleet.bundles.ort import untaken
from fleet.bundles.rule import WARN, Case
from fleet.bundles.rules_bundle import backend_cpu, shards_mixed
from fleet.config.runners import default_runner
from fleet.model.bundle import Bundle
from fleet.model.errors import BundleError, InputError
from fleet.model.facts import Facts
from fleet.model.finding import Finding
from fleet.model.playbook import RunSpec
from fleet.model.runtime import no_runtime
from fleet.runners.base import Kit, Runner
from fleet.runners.options import Defaults, OwnProgram
from fleet.runners.registry import OWN
from fleet.runtimes.select import Selection

_TARGET = "aarch64-oe-linux-gcc11.2"


@dataclass(frozen=True)
class Rehearsal:
    """The result: the runner, an example of the program that it needs ("" if it has its own).

    `undecided` is what a playbook must say before the runner can start the bundle; "" for nothing.
    `findings` are those of the pre-flight that depend on no device.
    """

    runner: str
    program: str
    undecided: str
    findings: tuple[Finding, ...]

    @property
    def possible(self) -> bool:
        """False if no device can run the bundle."""
        return not any(item.refuses for item in self.findings)

    @property
    def described(self) -> str:
        """The runner and its program, for people."""
        name = self.program.rpartition("/")[2]
        return f"{self.runner}, with a program that you build ({name})" if name else self.runner


def rehearse(bundle: Bundle) -> Rehearsal | None:
    """Return how the default runner of a bundle would start it; None if its kind has none."""
    try:
        chosen = OWN[default_runner(bundle.kind, bundle.root)]
    except KeyError:
        return None
    example = chosen.example(bundle) if isinstance(chosen, Defaults) else ""
    program = Path(example) if example else None
    kit = Kit(bundle, RunSpec(chosen.name, "hi", program=program), has_tool=True)
    launches, undecided = list[Launch](), ""
    try:
        launches = _launches(chosen, kit)
    except (InputError, BundleError) as error:
        undecided = f"{error.message}; {error.hint}" if error.hint else error.message
    # A playbook can give a dimension, and a library of Windows is right on Windows.
    others = [
        replace(finding, severity=WARN)
        for finding in (
            *untaken(bundle, launches),
            *foreign(bundle, SentFiles(bundle.files, ""), launches)[0],
        )
    ]
    selection = Selection(_TARGET, chosen.name, None, (), (), has_tool=True)
    case = Case(bundle, no_runtime(_TARGET), selection, _TARGET, Facts())
    rules = [*shards_mixed.findings(case), *backend_cpu.findings(case)]
    return Rehearsal(chosen.name, example, undecided, (*rules, *others))


def _launches(chosen: Runner, kit: Kit) -> list[Launch]:
    """Return the start of the run; none for a bundle that says itself that files are damaged."""
    if kit.bundle.faulty or any(item.pattern for item in kit.bundle.missing):
        return []
    if not (isinstance(chosen, OwnProgram) or chosen.python):
        chosen.files(kit)
    start = chosen.start(kit)
    return [Launch(start.argv, start.env, start.cwd, start.config)]
