"""`fleet fsck`: what is on devices, checked to the last byte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.common import DEFAULT_PARALLEL, end_devices, hosts_of
from fleet.cli.hints import commands_in
from fleet.cli.live import listening
from fleet.cli.results import emit, show_devices
from fleet.engine.fsck import Fsck, FsckOptions, FsckReport
from fleet.engine.pool import DeviceResult
from fleet.engine.transfer.limits import parse_rate


def fsck(
    inventory: opt.Inventory,
    host: opt.Hosts = None,
    limit: opt.Limit = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair damaged files, links and history.")
    ] = False,
    source: Annotated[
        list[Path] | None,
        typer.Option(
            help="With --repair: file or folder on this computer with intact copies. Repeatable."
        ),
    ] = None,
    bandwidth: Annotated[
        str | None,
        typer.Option(help="Limit the disk reads of each device: 50MB/s.", metavar="RATE"),
    ] = None,
    parallel: opt.Parallel = None,
    accept_new: opt.AcceptNew = False,
    as_json: opt.Json = False,
) -> None:
    """Check the hashes of all release files on devices, and move damaged files aside.

    Example: fleet fsck -i inventories/lab.yaml --bandwidth 50MB/s
    """
    options = FsckOptions(
        repair=repair,
        bandwidth=parse_rate(bandwidth) if bandwidth else None,
        sources=tuple(source or ()),
        parallel=parallel or DEFAULT_PARALLEL,
        accept_new=accept_new,
    )
    hosts = hosts_of(inventory, limit, host)
    if as_json:
        results = Fsck(hosts, lambda _: None, options).run()
        emit(results, "text", "error")
    else:
        with listening(as_json=False, total=len(hosts)) as listener:
            results = Fsck(hosts, listener, options).run()
        _show(results)
    end_devices(results)


def _show(results: list[DeviceResult[FsckReport]]) -> None:
    rows: list[Sequence[object]] = []
    cures: dict[str, None] = {}
    for result in results:
        report = result.value
        if report is None:
            continue
        for damage in report.damages:
            then = damage.cure
            if commands_in(then):
                cures[then], then = None, "see below"
            rows.append((result.host.name, damage.text, then))
        rows += [(result.host.name, damage.text, "repaired") for damage in report.repaired]
    if rows:
        output.table("damages", ("device", "what", "then"), rows)
    show_devices("fsck", results)
    for cure in cures:
        output.advise(f"  try: {cure}")
