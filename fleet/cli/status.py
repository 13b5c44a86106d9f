"""`fleet status`, `fleet rollback`: the releases of devices, and the switch back to a
previous one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.common import DEFAULT_PARALLEL, end_devices, hosts_of
from fleet.cli.hints import commands_in
from fleet.cli.live import listening
from fleet.cli.results import emit, show_devices, show_errors
from fleet.engine.deploy import releases
from fleet.engine.pool import DeviceResult
from fleet.engine.status import DeviceStatus
from fleet.engine.status import status as device_status
from fleet.model.events import Event, Warned
from fleet.model.inventory import Host

if TYPE_CHECKING:
    from fleet.engine.deploy.fsck import FsckReport

VerifyOption = Annotated[
    bool,
    typer.Option(
        "--verify",
        help="Check every stored file by its hash, and move damaged files aside (slow). With "
        "--drift: compare hashes, not only sizes.",
    ),
]
RepairOption = Annotated[
    bool,
    typer.Option("--repair", help="With --verify: repair damaged files, links and history."),
]
SourceOption = Annotated[
    list[Path] | None,
    typer.Option(
        help="With --repair: file or folder on this computer with intact copies. Repeatable."
    ),
]
BandwidthOption = Annotated[
    str | None,
    typer.Option(
        help="With --verify: limit the disk reads of each device: 50MB/s.", metavar="RATE"
    ),
]
DriftOption = Annotated[
    Path | None,
    typer.Option(
        help="Show how the devices differ from this lock file, or from the lock file of "
        "this playbook."
    ),
]


def status(
    context: typer.Context,
    inventory: opt.Inventory,
    host: opt.Hosts = None,
    limit: opt.Limit = None,
    parallel: opt.Parallel = None,
    accept_new: opt.AcceptNew = False,
    verify: VerifyOption = False,
    repair: RepairOption = False,
    source: SourceOption = None,
    bandwidth: BandwidthOption = None,
    drift: DriftOption = None,
    lock_file: opt.LockFile = None,
    as_json: opt.Json = False,
) -> None:
    """Show what is deployed, and whether its files are complete. Without --verify it only reads.

    Example: fleet status -i inventories/lab.yaml
    Example: fleet status --verify -i inventories/lab.yaml --bandwidth 50MB/s
    """
    hosts = hosts_of(inventory, limit, host)
    mode = "--drift" if drift else "--verify" if verify else ""
    opt.refuse_others(context, mode, _COMMON | _MODES[mode], {} if mode else _NEEDS)
    if drift is not None:
        _show_drift(hosts, drift, lock_file, parallel, accept_new, verify, as_json)
        return
    if verify:
        _verify(hosts, repair, source, bandwidth, parallel, accept_new, as_json)
        return
    results = device_status(
        hosts, _warn, parallel=parallel or DEFAULT_PARALLEL, accept_new=accept_new
    )
    if as_json:
        emit(results)
    else:
        _show_status(results)
    show_errors(results)
    end_devices(results)


_COMMON = {"inventory", "host", "limit", "parallel", "accept_new", "as_json"}
_NEEDS = {
    "lock_file": "--drift PLAYBOOK", "repair": "--verify", "source": "--verify --repair",
    "bandwidth": "--verify",
}  # fmt: skip
_MODES = {
    "": set[str](),
    "--drift": {"drift", "lock_file", "verify"},
    "--verify": {"verify", "repair", "source", "bandwidth"},
}


def _verify(
    hosts: Sequence[Host],
    repair: bool,
    sources: Sequence[Path] | None,
    bandwidth: str | None,
    parallel: int | None,
    accept_new: bool,
    as_json: bool,
) -> None:
    from fleet.engine.deploy.fsck import Fsck, FsckOptions  # noqa: PLC0415 - loads much of a deploy
    from fleet.engine.transfer.context import parse_rate  # noqa: PLC0415

    options = FsckOptions(
        repair=repair,
        bandwidth=parse_rate(bandwidth) if bandwidth else None,
        sources=tuple(sources or ()),
        parallel=parallel or DEFAULT_PARALLEL,
        accept_new=accept_new,
    )
    if as_json:
        results = Fsck(hosts, lambda _: None, options).run()
        emit(results, "text", "error")
    else:
        with listening(as_json=False, total=len(hosts)) as listener:
            results = Fsck(hosts, listener, options).run()
        _show_damages(results)
    end_devices(results)


def _show_damages(results: list[DeviceResult[FsckReport]]) -> None:
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
    show_devices("status --verify", results)
    for cure in cures:
        output.advise(f"  try: {cure}")


_COLUMNS = (
    "device", "name", "release", "state", "since", "by", "last rate", "disk", "QAIRT",
    "rollback to", "emulated",
)  # fmt: skip
_DROPS = ("rollback to", "QAIRT", "disk", "emulated", "by", "name", "last rate", "since", "state")


def _warn(event: Event) -> None:
    """Print a warning about this computer; this command does not show warnings about devices."""
    if isinstance(event, Warned) and not event.host:
        output.note(f"warning: {event.text}")


def _show_status(results: Sequence[DeviceResult[DeviceStatus]]) -> None:
    rows: list[Sequence[object]] = []
    for result in results:
        device = result.value
        free = device.disk_free_bytes if device else None
        disk = None if free is None else f"{free / 1e9:.1f} GB"
        for item in device.deployed if device else ():
            since = item.since and item.since[:16].replace("T", " ") + "Z"
            shown = (item.name, item.id, item.state, since, item.by, item.rate)
            emulated = "yes" if device and device.emulated else "no"
            last = (item.origin.get("build_id"), item.previous or "-", emulated)
            rows.append((result.host.name, *shown, disk, *last))
        if device is None or not device.deployed:
            rows.append((result.host.name, "-", "-", result.outcome, *"-" * 3, disk, *"-" * 3))
    output.table("status", _COLUMNS, rows, _DROPS)
    for result in results:
        if result.text and result.error is None:
            output.say(f"{result.host.name}: {result.text}")


def rollback(
    name: Annotated[str, typer.Argument(help="Name of the release, as `fleet status` shows it.")],
    inventory: opt.Inventory,
    limit: opt.Limit = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="Id of the release, or its first characters; default: the previous release."
        ),
    ] = None,
    parallel: opt.Parallel = None,
    as_json: opt.Json = False,
) -> None:
    """Switch back to the previous release if it opens an NPU session. Sends no files.

    Example: fleet rollback tiny-genie -i inventories/lab.yaml --limit lab001
    """
    hosts = hosts_of(inventory, limit)
    with listening(as_json=as_json, total=len(hosts)) as listener:
        results = releases.rollback(
            hosts, name, listener, to=to, parallel=parallel or DEFAULT_PARALLEL
        )
    if not as_json:
        show_devices(f"rollback {name}", results)
    end_devices(results)


def _show_drift(
    hosts: tuple[Host, ...],
    of: Path,
    given: Path | None,
    parallel: int | None,
    accept_new: bool,
    verify: bool,
    as_json: bool,
) -> None:
    """Compare the devices with a lock, print the differences, and exit with the devices' code.

    `of` is a playbook or a lock file.
    """
    from fleet.config.lockfile import load_lock, lock_path  # noqa: PLC0415 - what knows playbooks
    from fleet.config.playbook import load_playbook  # noqa: PLC0415 - what knows playbooks
    from fleet.engine.deploy.drift import drift as compare_with_lock  # noqa: PLC0415 - what knows playbooks

    if of.suffix == ".lock":
        lock, target = load_lock(of), None
    else:
        playbook = load_playbook(of)
        lock, target = load_lock(lock_path(of, given)).of(playbook.name), playbook.runtime.target
    results = compare_with_lock(
        hosts,
        lock,
        lambda _: None,
        target=target,
        verify=verify,
        parallel=parallel or DEFAULT_PARALLEL,
        accept_new=accept_new,
    )
    if as_json:
        emit(results)
    else:
        rows = [(result.host.name, result.outcome, result.text) for result in results]
        output.table(f"drift from {lock.name}", ("device", "outcome", ""), rows)
    show_errors(results)
    end_devices(results)
