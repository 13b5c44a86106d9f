"""`fleet trust`: show host keys, pin them, and say who was trusted when."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from fleet.cli import output
from fleet.cli.common import InventoryOption, JsonOption, hosts_of
from fleet.model.errors import InputError
from fleet.model.inventory import Host
from fleet.transport.trust import offered_key, trust_host
from fleet.transport.trustlog import log_path, read


def register(root: typer.Typer) -> None:
    """Add `trust`."""
    root.command()(trust)


def trust(
    host: Annotated[str, typer.Argument(help="Host of the inventory, or a pattern as of --limit.")],
    inventory: InventoryOption,
    reflashed: Annotated[
        bool, typer.Option("--reflashed", help="Replace the pinned key: the board was re-flashed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    log: Annotated[
        bool, typer.Option("--log", help="Only show who was trusted when; pin nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the key that a host offers and pin it in fleet's own known_hosts, with a log.

    Example: fleet trust evk-07 -i inventories/evks.yaml
    """
    hosts = hosts_of(inventory, [host])
    if log:
        _show_log(hosts, as_json=as_json)
        return
    rows = [_trust(one, reflashed=reflashed, yes=yes, quiet=as_json) for one in hosts]
    if as_json:
        output.emit_json(rows)


def _trust(one: Host, *, reflashed: bool, yes: bool, quiet: bool) -> dict[str, str]:
    offer = offered_key(one)
    row = {"host": one.name, "key": offer.kind, "offered": offer.fingerprint, "was": offer.pinned}
    tell = output.note if quiet else output.say
    tell(f"{one.name} offers {offer.kind} {offer.fingerprint}")
    if offer.pinned and offer.pinned != offer.fingerprint:
        tell(f"  pinned so far: {offer.pinned}")
        if not reflashed:
            raise InputError(
                f"{one.name}: the key has changed", hint=f"fleet trust {one.name} --reflashed"
            )
    elif offer.pinned:
        tell("  it is pinned already")
        return {**row, "outcome": "unchanged"}
    if not yes and not typer.confirm("Is that the key of the board?", err=True):
        raise typer.Abort
    trust_host(one, offer)
    tell(f"  pinned in {one.known_hosts}, noted in {log_path(one).name}")
    return {**row, "outcome": "pinned"}


def _show_log(hosts: tuple[Host, ...], *, as_json: bool) -> None:
    names = {one.name for one in hosts}
    paths = dict.fromkeys(log_path(one) for one in hosts)
    lines = [line for path in paths for line in read(path) if line.host in names]
    if as_json:
        output.emit_json([asdict(line) for line in lines])
        return
    rows = [(a.time, a.host, a.why, a.old or "-", a.new, a.by) for a in lines]
    output.table("trust", ("when", "host", "why", "old", "new", "by"), rows)
