"""Options that many commands share; nothing is imported for them but typer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Inventory = Annotated[
    Path, typer.Option("--inventory", "-i", help="Inventory file (YAML).", show_default=False)
]
LIMIT_HELP = "Only these hosts: names, groups, globs, '~regex', 'group[0:2]', '!not', '&and'."
Limit = Annotated[list[str] | None, typer.Option("--limit", "-l", help=LIMIT_HELP)]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Parallel = Annotated[int | None, typer.Option("--parallel", "-p", min=1, help="Devices at a time.")]
AcceptNew = Annotated[
    bool, typer.Option("--accept-new", help="Pin host keys that were never seen.")
]
Verify = Annotated[
    bool, typer.Option("--verify", help="Hash every file on the device; do not trust sizes.")
]
Offline = Annotated[bool, typer.Option("--offline", help="Use the store only; fetch nothing.")]
Executor = Annotated[
    str | None, typer.Option(help="Work on a dask cluster: dask://SCHEDULER:PORT.")
]
Playbook = Annotated[Path, typer.Argument(help="Playbook file (YAML).")]
LockFile = Annotated[
    Path | None, typer.Option(help="Lock file; default: fleet.lock beside the playbook.")
]
AllowReboot = Annotated[
    bool, typer.Option("--allow-reboot", help="Reboot devices where the plan says so.")
]
Records = Annotated[Path | None, typer.Option("--output", help="Folder for records.")]
Store = Annotated[
    Path | None, typer.Option(help="Folder of records (--output of `fleet run`), or a .db file.")
]
