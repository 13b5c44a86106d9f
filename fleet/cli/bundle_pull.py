"""`fleet bundle pull`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleet.bundles.aihub.pull import Pulled
from fleet.bundles.aihub.pull import pull as pull_model
from fleet.cli import options as opt
from fleet.cli import output
from fleet.model.files import human_bytes


def pull(
    reference: Annotated[
        str,
        typer.Argument(
            metavar="aihub:ID",
            help="Id of a compile job or model on Qualcomm AI Hub, such as aihub:jp4k9xzqg.",
        ),
    ],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--output",
            help="New folder for the bundle. Default: a folder with the name of the model.",
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for a job that is still running.")
    ] = 0,
    as_json: opt.Json = False,
) -> None:
    """Download a model that Qualcomm AI Hub compiled, as a bundle folder. Needs npu-fleet\\[aihub].

    Examples:
      fleet bundle pull aihub:jabc123 --output resnet50
      fleet bundle pull aihub:jabc123 --wait 3600
    """
    done = pull_model(
        reference, folder, wait_seconds=wait, verbose=output.errors.is_terminal, say=output.note
    )
    if as_json:
        output.emit_json(
            {"folder": done.folder.absolute(), **done.record, "next": done.next_commands}
        )
    else:
        _show(done)


def _show(done: Pulled) -> None:
    record = done.record
    job = record["job"]
    chip = [record["chip"] or "unknown chip", record["hexagon_arch"] or "unknown arch"]
    if record["soc_model"]:
        chip.append(f"soc_model {record['soc_model']}")
    qairt = record["qairt"]
    rows: list[tuple[str, object]] = [
        ("job", f"{job['id']} ({job['kind']}), {job['finished'] or 'unknown date'}" if job else ""),
        ("model", f"{record['model']['id']} {record['model']['name']}"),
        ("runtime", record["runtime"]),
        ("device", record["device"]["name"] or None),
        ("chip", ", ".join(chip)),
        ("QAIRT", f"{qairt} (from {record['qairt_source']})" if qairt else None),
        ("variant", record["qairt_variant"] or "none named"),
        ("options", job["options"] if job else ""),
        ("kind of bundle", record["kind"]),
    ]
    output.table(str(done.folder), ("", ""), rows)
    files = [(f["name"], human_bytes(f["size"]), f["sha256"][:16]) for f in record["files"]]
    output.table("Files", ("file", "size", "SHA-256"), files)
    for text in done.notes:
        output.note(f"note: {text}")
    for command in done.next_commands:
        output.note(f"next: {command}")
