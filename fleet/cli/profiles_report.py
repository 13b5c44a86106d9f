"""`fleet profiles report`: one HTML file that can be sent to others."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.hints import completed
from fleet.model.errors import InputError
from fleet.model.extras import install_extra
from fleet.profiles.files import written_whole

if TYPE_CHECKING:
    from fleet.profiles.compare.groups import RecordGroup
    from fleet.profiles.report.summary import Report

GROUPS = 6
SelectionsArgument = Annotated[
    list[str], typer.Argument(help="Selections of runs (tag:NAME) or files; each is a group.")
]
OutputOption = Annotated[Path, typer.Option("--output", help="HTML file to write.")]
TitleOption = Annotated[
    str, typer.Option(help="Title of the report. Default: the names of the models and devices.")
]


def report(
    selections: SelectionsArgument,
    target: OutputOption = Path("report.html"),
    title: TitleOption = "",
    store: opt.Store = None,
    as_json: opt.Json = False,
) -> None:
    """Write one HTML file that works offline: tables, distributions, heat and history of runs.

    Example: fleet profiles report tag:before tag:after --output report.html
    """
    # numpy and the drawing library, for this command alone
    from fleet.cli.compared import group_of  # noqa: PLC0415
    from fleet.profiles.report import drawing  # noqa: PLC0415
    from fleet.profiles.report.page import page  # noqa: PLC0415
    from fleet.profiles.report.summary import gather  # noqa: PLC0415
    from fleet.profiles.report.words import many  # noqa: PLC0415

    if len(selections) > GROUPS:
        raise InputError(
            f"a report can show at most {GROUPS} groups, but {len(selections)} were given",
            hint=f"give at most {GROUPS} selections, or make several reports",
        )
    groups = _apart([group_of(selection, store) for selection in selections])
    for group in groups:
        if not group.records:
            raise InputError(
                f"'{group.label}' contains only warm-up runs, and a report shows no warm-up runs",
                hint="choose other runs: fleet profiles list",
            )
    found = gather(groups)
    if drawing.library() is None:
        cure = install_extra("report")
        output.note(
            f"the report lacks the charts of heat, operations and history; to add them: {cure}"
        )
    size = _write(target, page(found, title))
    if as_json:
        output.emit_json(_plain(found, target, size))
        return
    counted = sum(record.counts for record in found.records)
    output.say(
        f"{target}: {size / 1000:,.0f} kB, {many(found.boards, 'board')}, "
        f"{many(len(found.records), 'run')}, {counted:,} count"
    )
    if len(selections) == 2 and len(groups) == 2:
        output.say(completed(f"next: fleet profiles compare {shlex.join(selections)}"))
    else:
        output.say(f"next: open {shlex.quote(str(target))} in a browser")


def _apart(groups: list[RecordGroup]) -> list[RecordGroup]:
    """Make each side of `fleet ab` a group; leave them out if the report has no room for them.

    Raises InputError if nothing but sides of `fleet ab` was selected, and too many of them.
    """
    from fleet.profiles.compare.groups import apart, group, sides_of  # noqa: PLC0415 - numpy

    split = [side for whole in groups for side in apart(whole)]
    if len(split) <= GROUPS:
        return split
    rest = [group(part.label, sides_of(part.records).get("", [])) for part in groups]
    rest = [part for part in rest if part.records]
    if not rest:
        raise InputError(
            f"a report can show at most {GROUPS} groups, but the runs of `fleet ab` in "
            f"'{groups[0].label}' are {len(split)}: each side is a group",
            hint="fleet profiles list (shows the tag of each side), then select at most "
            f"{GROUPS} of them",
        )
    output.note(
        "the report leaves out the runs of `fleet ab`, whose sides are never pooled; select them "
        "by their tag (tag:ab-ID)"
    )
    return rest


def _write(target: Path, text: str) -> int:
    """Whole or not at all; how many bytes."""
    with written_whole(target) as part:
        return part.write_bytes(text.encode())


def _plain(found: Report, target: Path, size: int) -> dict[str, object]:
    return {
        "schema": 1,
        "file": target,
        "bytes": size,
        "boards": found.boards,
        "emulated": found.emulated,
        "groups": [
            {"selection": group.label, "runs": len(group.records), "counted": len(group.counted)}
            for group in found.groups
        ],
        "metrics": [metric.name for metric in found.metrics],
        "left_out": found.left_out,
        "rows": len(found.rows),
    }
