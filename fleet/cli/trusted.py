"""`fleet config trust`: folders of other users that fleet trusts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.config import trusted
from fleet.model.errors import InputError


def trust(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Folder; without it: list the folders.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Trust the folder no longer.")] = False,
    as_json: opt.Json = False,
) -> None:
    """Trust the inventories and playbooks of a folder that other users can change.

    Example: fleet config trust /srv/lab/boards
    """
    if folder is None:
        if remove:
            raise InputError(
                "--remove needs a folder", hint="fleet config trust (lists the trusted folders)"
            )
        folders = [str(each) for each in trusted.folders()]
        output.answer(folders, "\n".join(folders) or "no folder is trusted", as_json=as_json)
        return
    real = trusted.distrust(folder) if remove else trusted.trust(folder)
    word = "no longer trusted" if remove else "trusted, with all that is in it"
    output.answer({"folder": str(real), "trusted": not remove}, f"{real}: {word}", as_json=as_json)
