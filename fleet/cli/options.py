"""Options that many commands share; nothing is imported for them but typer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Inventory = Annotated[
    Path, typer.Option("--inventory", "-i", help="Inventory file (YAML).", show_default=False)
]
LIMIT_HELP = "Only these devices: names, groups, globs, '~regex', 'group[0:2]', '!not', '&and'."
Limit = Annotated[list[str] | None, typer.Option("--limit", "-l", help=LIMIT_HELP)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Parallel = Annotated[
    int | None, typer.Option("--parallel", "-p", min=1, help="Simultaneous devices.")
]
AcceptNew = Annotated[
    bool, typer.Option("--accept-new", help="Trust ssh host keys that were never seen before.")
]
Verify = Annotated[
    bool, typer.Option("--verify", help="Hash every file on the device (slow), not only its size.")
]
Offline = Annotated[bool, typer.Option("--offline", help="Download nothing; use stored runtimes.")]
Executor = Annotated[
    str | None, typer.Option(help="Let a dask cluster do the work: dask://SCHEDULER:PORT.")
]
Playbook = Annotated[Path, typer.Argument(help="Playbook file (YAML).")]
LockFile = Annotated[
    Path | None, typer.Option(help="Lock file; default: fleet.lock beside the playbook.")
]
AllowReboot = Annotated[
    bool, typer.Option("--allow-reboot", help="Reboot devices where a change needs it.")
]
Records = Annotated[Path | None, typer.Option("--output", help="Folder for the results.")]
Store = Annotated[
    Path | None, typer.Option(help="Folder of results (--output of `fleet run`), or a .db file.")
]
