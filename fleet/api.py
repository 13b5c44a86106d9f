"""The Python API: what the command line uses. docs/api.md has the examples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.cli.project import needed
from fleet.config.inventory import load_inventory, select
from fleet.config.playbook import load_playbook
from fleet.doctor.examine import Round, examine
from fleet.engine.operation import Operation
from fleet.engine.options import DeployOptions
from fleet.engine.rollout.inputs import inputs_of
from fleet.model.diagnosis import Diagnosis
from fleet.model.errors import FleetError, InputError
from fleet.model.events import CallerListener, Event, Listener
from fleet.model.inventory import Host
from fleet.triage.triage import triage

if TYPE_CHECKING:
    from adbutils import AdbDevice
    from fabric import Connection, Group

__all__ = [
    "DeployOptions", "FleetError", "adb_device", "connection", "diagnose", "diagnose_log", "group",
    "load",
]  # fmt: skip


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

    `limit` are patterns as of `--limit`; `listener` gets every event, from several threads. The
    first error that it raises is logged (logger `fleet`); no device fails by it. Raises InputError
    for a file that is wrong; errors of devices are in their results.
    """
    listener = CallerListener(listener)
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
    return examine(hosts, CallerListener(listener), how or Round())


def diagnose_log(text: str, *, platform: str = "") -> Diagnosis:
    """The causes that a log shows; `platform` (linux, android, windows) where it is known."""
    return triage(text, platform=platform)


def _hosts(patterns: Sequence[str], inventory: str | Path | None) -> list[Host]:
    path = needed("inventory") if inventory is None else Path(inventory)
    return list(select(load_inventory(path), list(patterns)))


def _host(name: str, inventory: str | Path | None) -> Host:
    hosts = _hosts([name], inventory)
    if len(hosts) != 1:
        raise InputError(
            f"'{name}' names {len(hosts)} devices, and one is needed",
            hint=f"one of: {', '.join(host.name for host in hosts)}",
        )
    return hosts[0]


def connection(name: str, *, inventory: str | Path | None = None) -> Connection:
    """Return a `fabric.Connection` to a host of the inventory, not yet open.

    fleet opens it: host keys, jump hosts, keys and passwords are those of the inventory.
    `inventory` defaults to that of FLEET_INVENTORY, then of the project (fleet.yaml).
    Raises InputError for an unknown name and for a device that is not reached over ssh.
    """
    from fleet.transport.scripting import fabric_connection  # noqa: PLC0415 - fabric takes 0.1 s

    return fabric_connection(_host(name, inventory))


def group(*patterns: str, inventory: str | Path | None = None) -> Group:
    """Return a `fabric.Group` of the hosts that the patterns of `--limit` select.

    Each call on the group runs on all hosts at once. Raises InputError as `connection` does.
    """
    from fleet.transport.scripting import fabric_group  # noqa: PLC0415 - fabric takes 0.1 s

    return fabric_group(_hosts(patterns, inventory))


def adb_device(name: str, *, inventory: str | Path | None = None) -> AdbDevice:
    """Return an `adbutils.AdbDevice` for a phone of the inventory, after it has answered.

    Raises InputError for an unknown name and for a device that is not reached over adb, and a
    FleetError if the phone does not answer.
    """
    from fleet.transport.scripting import adbutils_device  # noqa: PLC0415 - adbutils takes 0.15 s

    return adbutils_device(_host(name, inventory))
