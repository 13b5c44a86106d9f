"""The Python API: what the command line uses. docs/api.md has the examples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleet.config.inventory import load_inventory, select
from fleet.config.playbook import load_playbook
from fleet.doctor.examine import Round, examine
from fleet.engine.operation import Operation
from fleet.engine.options import DeployOptions
from fleet.engine.rollout.inputs import inputs_of
from fleet.model.diagnosis import Diagnosis
from fleet.model.errors import FleetError
from fleet.model.events import Event, Listener
from fleet.triage.triage import triage

__all__ = ["DeployOptions", "FleetError", "diagnose", "diagnose_log", "load"]


def _silent(_: Event) -> None:
    return None


def load(
    inventory: str | Path,
    playbook: str | Path,
    *,
    limit: Sequence[str] = ("all",),
    listener: Listener = _silent,
    options: DeployOptions | None = None,
) -> Operation:
    """A playbook on the hosts of an inventory: `.plan()`, `.provision()`, `.deploy()`, `.run()`.

    `limit` are patterns as of `--limit`; `listener` gets every event, from several threads.
    Raises InputError for a file that is wrong; errors of devices are in their results.
    """
    hosts = select(load_inventory(Path(inventory)), list(limit))
    lock = options is not None and options.lock is not None  # whose file is not known here
    inputs = None if lock else inputs_of(Path(playbook), Path(inventory), list(limit))
    return Operation(load_playbook(Path(playbook)), hosts, listener, options=options, inputs=inputs)


def diagnose(
    inventory: str | Path,
    *,
    limit: Sequence[str] = ("all",),
    listener: Listener = _silent,
    how: Round | None = None,
) -> list[Diagnosis]:
    """What is wrong with the devices of an inventory, one diagnosis each; reads only.

    Raises InputError for a file that is wrong; a device that is not reached has a diagnosis.
    """
    hosts = select(load_inventory(Path(inventory)), list(limit))
    return examine(hosts, listener, how or Round())


def diagnose_log(text: str, *, platform: str = "") -> Diagnosis:
    """The causes that a log shows; `platform` (linux, android, windows) where it is known."""
    return triage(text, platform=platform)
