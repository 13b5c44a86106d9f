"""Options that many commands share, and how they become hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from fleet.cli import output
from fleet.config.inventory import load_inventory, select
from fleet.engine.cluster.connecting import executor_for
from fleet.engine.pool import DeviceResult, Remote
from fleet.model.errors import FleetError, InputError
from fleet.model.inventory import Host

InventoryOption = Annotated[
    Path, typer.Option("--inventory", "-i", help="Inventory file (YAML).", show_default=False)
]
LimitOption = Annotated[
    list[str] | None,
    typer.Option(
        "--limit", "-l", help="Only these: names, groups, globs, '!not', '&and', '~regex'."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
ParallelOption = Annotated[
    int | None, typer.Option("--parallel", "-p", min=1, help="Devices at a time.")
]
AcceptNewOption = Annotated[
    bool, typer.Option("--accept-new", help="Pin host keys that were never seen.")
]
VerifyOption = Annotated[
    bool, typer.Option("--verify", help="Hash every file on the device, believe no size.")
]
OfflineOption = Annotated[bool, typer.Option("--offline", help="Fetch nothing: the store only.")]
ExecutorOption = Annotated[
    str | None,
    typer.Option("--executor", help="Work on a dask cluster: dask://SCHEDULER:PORT."),
]
PlaybookArgument = Annotated[Path, typer.Argument(help="Playbook file (YAML).")]

DEFAULT_PARALLEL = 16


def hosts_of(inventory: Path, limit: list[str] | None) -> tuple[Host, ...]:
    """The hosts that are meant; InputError when there is none."""
    loaded = load_inventory(inventory)
    for text in loaded.warnings:
        output.note(f"warning: {text}")
    hosts = select(loaded, limit or ["all"])
    if not hosts:
        raise InputError(f"{inventory} has no hosts", hint="fleet inventory list")
    return hosts


@contextmanager
def working_on(address: str | None, parallel: int | None) -> Iterator[Remote | None]:
    """The executor of `--executor`, left at the end; None without one."""
    if address is None:
        yield None
        return
    with executor_for(address, limit=parallel) as executor:
        yield executor


def end_with(errors: list[FleetError | None], fine: bool) -> None:
    """Leave with exit code 0, or the worst of the devices' codes."""
    if not fine:
        codes = [error.exit_code for error in errors if error is not None]
        raise typer.Exit(max(codes, default=1))


def end_devices(results: Sequence[DeviceResult]) -> None:
    """As `end_with`, for what became of devices."""
    end_with([one.error for one in results], all(one.fine for one in results))
