"""`fleet trust`: show a host key and pin it."""

from __future__ import annotations

from typing import Annotated

import typer

from fleet.cli import output
from fleet.cli.common import InventoryOption, hosts_of
from fleet.model.errors import InputError
from fleet.transport.trust import offered_key, trust_host


def register(root: typer.Typer) -> None:
    """Add `trust`."""
    root.command()(trust)


def trust(
    host: Annotated[str, typer.Argument(help="Host of the inventory.")],
    inventory: InventoryOption,
    reflashed: Annotated[
        bool, typer.Option("--reflashed", help="Replace the pinned key: the board was re-flashed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Show the key that a host offers and pin it in fleet's own known_hosts.

    Example: fleet trust evk-07 -i inventories/evks.yaml
    """
    (one,) = hosts_of(inventory, [host])[:1]
    offer = offered_key(one)
    output.say(f"{one.name} offers {offer.kind} {offer.fingerprint}")
    if offer.pinned and offer.pinned != offer.fingerprint:
        output.say(f"  pinned so far: {offer.pinned}")
        if not reflashed:
            raise InputError(
                f"{one.name}: the key has changed", hint=f"fleet trust {one.name} --reflashed"
            )
    elif offer.pinned:
        output.say("  it is pinned already")
        return
    if not yes and not typer.confirm("Is that the key of the board?"):
        raise typer.Abort
    trust_host(one, offer)
    output.say(f"  pinned in {one.known_hosts}")
