"""Archives for a maintainer: fleet shows the contents before it writes the file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import typer

from fleet.cli import output
from fleet.doctor.bundle import contents, write_archive


def send_out(
    path: Path, members: Mapping[str, str], *, hint: str, yes: bool, as_json: bool
) -> bool:
    """Show the list of files, ask on a terminal, and write the archive.

    Returns False if the user declines. With --yes, with --json, or if standard input is no
    terminal, fleet does not ask. Raises InputError if the archive cannot be written.
    """
    output.note(f"{path} will contain:")
    for name, size, about in contents(members):
        output.note(f"  {size:>7} bytes  {name.partition('/')[2]:30} {about}")
    output.note("every word that fleet's table does not list is replaced, for example by <word-1>")
    ask = not (yes or as_json) and sys.stdin.isatty() and output.errors.is_terminal
    if ask and not typer.confirm(f"Write {path}?", default=True, err=True):
        output.note("nothing was written")
        return False
    write_archive(path, members, hint=hint)
    output.note(f"wrote {path}; review its contents before you share it")
    return True
