"""`fleet profiles report`: one HTML file that can be sent to others."""

from __future__ import annotations

import secrets
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli import output
from fleet.cli.hints import completed
from fleet.cli.options import JsonOption
from fleet.model.errors import InputError, ProfileStoreError

if TYPE_CHECKING:
    from fleet.profiles.report.summary import Report

GROUPS = 6
SelectionsArgument = Annotated[
    list[str],
    typer.Argument(help="Selections of runs, or files of records; each is a group of its own."),
]
OutputOption = Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")]
TitleOption = Annotated[str, typer.Option("--title", help="Its title; default: models, boards.")]
StoreOption = Annotated[Path | None, typer.Option("--store", help="Where the records are.")]


def register_in(group: typer.Typer) -> None:
    """Add the command to the group `profiles`."""
    group.command("report")(report)


def report(
    selections: SelectionsArgument,
    target: OutputOption = Path("report.html"),
    title: TitleOption = "",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw runs as one HTML file that needs no network: tables, distributions, heat, history.

    Example: fleet profiles report tag:before tag:after -o report.html
    """
    # numpy and the drawing library, for this command alone
    from fleet.cli.compared import group_of  # noqa: PLC0415
    from fleet.profiles.report import drawing  # noqa: PLC0415
    from fleet.profiles.report.page import page  # noqa: PLC0415
    from fleet.profiles.report.summary import gather  # noqa: PLC0415
    from fleet.profiles.report.words import many  # noqa: PLC0415

    if len(selections) > GROUPS:
        raise InputError(f"a report has {GROUPS} groups at most, {len(selections)} are given")
    drawing.library()
    groups = [group_of(one, store) for one in selections]
    for one in groups:
        if not one.records:
            raise InputError(f"'{one.label}' has warm-ups only", hint="fleet profiles list")
    found = gather(groups)
    size = _write(target, page(found, title))
    if as_json:
        output.emit_json(_plain(found, target, size))
        return
    counted = sum(one.counts for one in found.records)
    output.say(
        f"{target}: {size / 1000:,.0f} kB, {many(found.boards, 'board')}, "
        f"{many(len(found.records), 'run')}, {counted:,} count"
    )
    if len(selections) == 2:
        output.say(completed(f"next: fleet profiles compare {shlex.join(selections)}"))
    else:
        output.say(f"next: open {shlex.quote(str(target))} in a browser")


def _write(target: Path, text: str) -> int:
    """Whole or not at all; how many bytes."""
    data = text.encode()
    part = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
    try:
        part.write_bytes(data)
        part.replace(target)
    except OSError as error:
        raise ProfileStoreError(
            f"{target} cannot be written: {error.strerror}", hint=f"ls -ld {target.parent}"
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return len(data)


def _plain(found: Report, target: Path, size: int) -> dict[str, object]:
    return {
        "schema": 1,
        "file": target,
        "bytes": size,
        "boards": found.boards,
        "emulated": found.emulated,
        "groups": [
            {"selection": one.label, "runs": len(one.records), "counted": len(one.counted)}
            for one in found.groups
        ],
        "metrics": [one.name for one in found.metrics],
        "left_out": found.left_out,
        "rows": len(found.rows),
    }
