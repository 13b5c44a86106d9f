"""The conversion of options to hosts, and of results to an exit code."""

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
    """Return the hosts for a command that must not run on unnamed boards.

    Raises InputError if no host is named, and as `hosts_of` does.
    """
    if not limit and not named:
        raise InputError(
            "the command does not say which devices to use",
            hint="add names of devices or groups, or all: HOST...",
        )
    return hosts_of(inventory, limit, named)


def hosts_of(
    inventory: Path, limit: list[str] | None, named: list[str] | None = None
) -> tuple[Host, ...]:
    """Return the hosts that `--limit` and the names select. Raises InputError if there is none.

    Call it before threads are started: it imports the modules for ssh.
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
    """Raise InputError if two names mean one phone: fleet would work on it twice at the
    same time.
    """
    owners: dict[tuple[str, str], str] = {}
    for host in hosts:
        if not host.phone or not host.serial:
            continue
        other = owners.setdefault((host.serial, host.adb_server or ""), host.name)
        if other != host.name:
            raise InputError(
                f"{other} and {host.name} are one device: both have the serial number "
                f"{host.serial} in {inventory}",
                hint=f"remove one of the two names, or select one: --limit {other}",
            )


def only_host(inventory: Path, limit: list[str] | None, what: str) -> Host:
    """Return the only selected host. Raises InputError for several."""
    hosts = hosts_of(inventory, limit)
    if len(hosts) != 1:
        raise InputError(
            f"{what} works on exactly one device, but you selected {len(hosts)} devices",
            hint="select one device: --limit HOST",
        )
    return hosts[0]


@contextmanager
def working_on(address: str | None, parallel: int | None) -> Iterator[Remote | None]:
    """Provide the executor of `--executor`, and leave it at the end; provide None without the
    option.
    """
    if address is None:
        yield None
        return
    from fleet.engine.cluster.connecting import executor_for  # noqa: PLC0415 - the engine

    with executor_for(address, limit=parallel) as executor:
        yield executor


def end_with(errors: list[FleetError | None], fine: bool) -> None:
    """Exit with the highest exit code of the devices' errors, unless `fine`."""
    if not fine:
        codes = [error.exit_code for error in errors if error is not None]
        raise typer.Exit(max(codes, default=1))


def end_devices(results: Sequence[DeviceResult[Any]]) -> None:
    """Exit with the highest exit code of the devices, unless all are fine."""
    end_with([result.error for result in results], all(result.fine for result in results))
