"""The pre-flight: a check of whether a bundle works with a runtime on a device.

The pre-flight is pure: it reads values and returns findings, before fleet sends any data.
docs/preflight.md lists the rules.
"""

from __future__ import annotations

from fleet.bundles import rules_bundle, rules_chip, rules_device, rules_op_package, rules_windows
from fleet.bundles.rule import Case, Rule, rules_of
from fleet.model.bundle import Bundle
from fleet.model.facts import Facts
from fleet.model.finding import Finding
from fleet.model.runtime import Runtime
from fleet.runtimes.select import Selection

_ROOMS = (rules_bundle, rules_chip, rules_op_package, rules_device, rules_windows)
RULES: tuple[Rule, ...] = tuple(rule for module in _ROOMS for rule in rules_of(module))


def preflight(
    bundle: Bundle,
    runtime: Runtime,
    selection: Selection,
    target: str,
    facts: Facts,
    *,
    bytes_to_send: int | None = None,
    files_to_send: int | None = None,
) -> tuple[Finding, ...]:
    """Return a finding for each rule that does not hold: refusals first, else in the order of
    `RULES`.

    `bytes_to_send` and `files_to_send` are the size and number of the files missing on the device.
    They are None if the device was not asked yet; a disk that is too small is then only a warning.
    An unknown fact never refuses, except an unknown chip. Raises InputError for a target that fleet
    does not know.
    """
    case = Case(bundle, runtime, selection, target, facts, bytes_to_send, files_to_send)
    findings = [finding for rule in RULES for finding in rule.findings(case)]
    return tuple(sorted(findings, key=lambda finding: not finding.refuses))
