"""How options become hosts, and results an exit code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fleet.cli import output
from fleet.config.inventory import load_inventory, select
from fleet.model.errors import FleetError, InputError
from fleet.transport.early import import_ssh

if TYPE_CHECKING:
    from fleet.engine.pool import DeviceResult, Remote
    from fleet.model.inventory import Host

DEFAULT_PARALLEL = 16


def named_hosts(
    inventory: Path, limit: list[str] | None, named: list[str] | None
) -> tuple[Host, ...]:
    """As `hosts_of`, for what is done to no board that was not named. Raises InputError."""
    if not limit and not named:
        raise InputError(
            "the command does not say which devices to use",
            hint="add names of devices or groups, or all: HOST...",
        )
    return hosts_of(inventory, limit, named)


def hosts_of(
    inventory: Path, limit: list[str] | None, named: list[str] | None = None
) -> tuple[Host, ...]:
    """The hosts that are meant by `--limit` and by their names; InputError when there is none.

    To be called before threads are started: it imports what ssh needs.
    """
    limit = [*(named or ()), *(limit or ())]
    loaded = load_inventory(inventory)
    for text in loaded.warnings:
        output.note(f"warning: {text}")
    hosts = select(loaded, limit or ["all"])
    if not hosts:
        raise InputError(
            f"the inventory {inventory} contains no devices",
            hint=f"add devices to the file, then: fleet config list {inventory}",
        )
    _refuse_twins(hosts, inventory)
    if any(host.transport == "ssh" for host in hosts):
        import_ssh()
    return hosts


def _refuse_twins(hosts: Sequence[Host], inventory: Path) -> None:
    """Raise InputError where two names are one phone: it would be worked on twice at once."""
    seen: dict[tuple[str, str], str] = {}
    for host in hosts:
        if not host.phone or not host.serial:
            continue
        other = seen.setdefault((host.serial, host.adb_server or ""), host.name)
        if other != host.name:
            raise InputError(
                f"{other} and {host.name} are one device: both have the serial number "
                f"{host.serial} in {inventory}",
                hint=f"remove one of the two names, or select one: --limit {other}",
            )


def only_host(inventory: Path, limit: list[str] | None, what: str) -> Host:
    """The one host that is meant; InputError for several."""
    hosts = hosts_of(inventory, limit)
    if len(hosts) != 1:
        raise InputError(
            f"{what} works on exactly one device, but you selected {len(hosts)} devices",
            hint="select one device: --limit HOST",
        )
    return hosts[0]


@contextmanager
def working_on(address: str | None, parallel: int | None) -> Iterator[Remote | None]:
    """The executor of `--executor`, left at the end; None without one."""
    if address is None:
        yield None
        return
    from fleet.engine.cluster.connecting import executor_for  # noqa: PLC0415 - the engine

    with executor_for(address, limit=parallel) as executor:
        yield executor


def end_with(errors: list[FleetError | None], fine: bool) -> None:
    """Leave with exit code 0, or the worst of the devices' codes."""
    if not fine:
        codes = [error.exit_code for error in errors if error is not None]
        raise typer.Exit(max(codes, default=1))


def end_devices(results: Sequence[DeviceResult[Any]]) -> None:
    """As `end_with`, for what became of devices."""
    end_with([result.error for result in results], all(result.fine for result in results))
