"""`fleet status`, `fleet rollback`: what is on devices, and back to what was."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.common import DEFAULT_PARALLEL, end_devices, hosts_of
from fleet.cli.live import listening
from fleet.cli.results import emit, show_devices, show_errors
from fleet.engine import releases
from fleet.engine.pool import DeviceResult
from fleet.model.errors import FleetError, InputError


def status(
    inventory: opt.Inventory,
    host: opt.Hosts = None,
    limit: opt.Limit = None,
    parallel: opt.Parallel = None,
    accept_new: opt.AcceptNew = False,
    drift: Annotated[
        Path | None,
        typer.Option(
            help="Show how the devices differ from this lock file, or from the lock file of "
            "this playbook."
        ),
    ] = None,
    lock_file: opt.LockFile = None,
    verify: opt.Verify = False,
    as_json: opt.Json = False,
) -> None:
    """Show what is deployed, and whether its files are complete. Reads only.

    Example: fleet status -i inventories/lab.yaml
    """
    hosts = hosts_of(inventory, limit, host)
    if drift is not None:
        from fleet.cli.drift import show_drift  # noqa: PLC0415 - what knows playbooks

        show_drift(hosts, drift, lock_file, parallel, accept_new, verify, as_json)
        return
    if lock_file is not None or verify:
        name = "--lock-file" if lock_file is not None else "--verify"
        raise InputError(f"{name} has no effect without --drift", hint="add --drift PLAYBOOK")
    results = releases.status(
        hosts, lambda _: None, parallel=parallel or DEFAULT_PARALLEL, accept_new=accept_new
    )
    _add_known(results)
    if as_json:
        emit(results)
    else:
        _show_status(results)
    show_errors(results)
    end_devices(results)


def _add_known(results: Sequence[DeviceResult]) -> None:
    """What this workstation knows of each release: who deployed it, and its last rate."""
    from fleet.engine.rollout.deployers import deployers  # noqa: PLC0415 - runs and records
    from fleet.profiles.runs import RunStore  # noqa: PLC0415

    every = [(result.host.name, item) for result in results for item in _items(result)]
    known = deployers(RunStore(), {(host, item["id"]) for host, item in every})
    places = {(host, item["name"], item["id"]) for host, item in every}
    rates = _rates(places) if places and RunStore().root.is_dir() else {}
    for host, item in every:
        # Where a release came back, its first deploy says nothing of who switched to it now.
        again = item["history"].count(item["id"]) > 1
        item["by"] = None if again else known.get((host, item["id"]))
        item["rate"] = rates.get((host, item["name"], item["id"]))


def _rates(places: set[tuple[str, str, str]]) -> dict[tuple[str, str, str], str]:
    """`10.0 tok/s` by device, name and release: the median of the newest run that counts."""
    from fleet.cli.measured import rate_of  # noqa: PLC0415 - the store of records
    from fleet.profiles.store import ProfileStore  # noqa: PLC0415
    from fleet.profiles.store.select import Query  # noqa: PLC0415

    found = {}
    try:
        with ProfileStore() as store:
            store.look()
            for place in places:
                words = dict(
                    zip(("host", "name", "release"), ((word,) for word in place), strict=True)
                )
                records = store.plain(Query(words=words, counted="yes"), _RECORDS)
                newest = [r for r in records if r["run_id"] == records[-1]["run_id"]]
                if rate := rate_of([{**record, "counts": True} for record in newest]):
                    found[place] = rate
    except FleetError as error:
        output.note(f"warning: fleet cannot read the rates of the last runs: {error}")
    return found


def _items(result: DeviceResult) -> list[dict[str, Any]]:
    deployed: Any = result.details.get("deployed") or []
    return list(deployed)


_COLUMNS = (
    "device", "name", "release", "state", "since", "by", "last rate", "disk", "QAIRT",
    "rollback to", "emulated",
)  # fmt: skip
_DROPS = ("rollback to", "QAIRT", "disk", "emulated", "by", "name", "last rate", "since", "state")
_RECORDS = 5  # the newest of a name on a device: a run has that many by default


def _show_status(results: list[DeviceResult]) -> None:
    rows: list[Sequence[object]] = []
    for result in results:
        free = result.details.get("disk_free_bytes")
        disk = f"{free / 1e9:.1f} GB" if isinstance(free, int) else None
        emulated = "yes" if result.details.get("emulated") else "no"
        for item in _items(result):
            since = item["since"] and item["since"][:16].replace("T", " ") + "Z"
            shown = [item["name"], item["id"], item["state"], since, item["by"], item["rate"]]
            build = item["origin"].get("build_id")
            last = (build, item["previous"] or "-", emulated)
            rows.append((result.host.name, *shown, disk, *last))
        if not _items(result):
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
