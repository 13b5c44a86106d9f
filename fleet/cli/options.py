"""Options that many commands share; nothing is imported for them but typer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
LockFileOption = Annotated[
    Path | None, typer.Option("--lock-file", help="Lock file; default: fleet.lock by the playbook.")
]
