"""Facts of the QAIRT targets (`aarch64-oe-linux-gcc11.2`, ...), from runtime_files.yaml."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from fleet.data import frozen, load
from fleet.model.errors import InputError


@dataclass(frozen=True)
class TargetFacts:
    """The capabilities of a build of QAIRT.

    `kind` is `device` (a DSP behind FastRPC), `emulator` (x86_64, no DSP) or `windows`.
    `stub_archs` None means unknown, () means no HTP. `min_glibc` None means unknown.
    `refused_soc_models` are QNN soc_model numbers that the libraries refuse at load, with `Dsp
    startup: Unsupported SoC model`.
    """

    name: str
    os: str
    machine: str
    kind: str
    stub_archs: tuple[str, ...] | None
    genie: bool
    min_glibc: str | None = None
    refused_soc_models: tuple[int, ...] = ()
    needs_on_device: tuple[str, ...] = ()
    warning: str = ""
    wheel_machine: str | None = None
    wheel_platforms: tuple[str, ...] = ()


def known_targets() -> tuple[str, ...]:
    """Return the names of all targets in the table."""
    return tuple(load("runtime_files")["targets"])


def target_facts(target: str) -> TargetFacts:
    """Return the facts of one target. Raises InputError with the known ones."""
    row: dict[str, Any] | None = load("runtime_files")["targets"].get(target)
    if row is None:
        raise InputError(
            f"'{target}' is not a QAIRT target that fleet knows",
            hint="one of " + ", ".join(known_targets()),
        )
    wheel = row.get("wheel") or {}
    columns = {field.name for field in fields(TargetFacts)}
    known = {key: value for key, value in frozen(row).items() if key in columns}
    return TargetFacts(
        target,
        **known,
        wheel_machine=wheel.get("machine"),
        wheel_platforms=tuple(wheel.get("platforms", ())),
    )


def default_target(os_family: str, machine: str) -> str | None:
    """Return the target for an OS family (linux, android, windows) and `uname -m`, None if
    unknown.
    """
    by_machine = load("runtime_files")["default_targets"].get(os_family.lower(), {})
    target = by_machine.get(machine.lower())
    return None if target is None else str(target)


def target_of_wheel(machine: str) -> str | None:
    """Return the target for a wheel with libQnnHtp for this machine (`aarch64`, ...), or None."""
    for name, row in load("runtime_files")["targets"].items():
        if (row.get("wheel") or {}).get("machine") == machine:
            return str(name)
    return None
