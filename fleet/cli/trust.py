"""`fleet trust`: shows and pins host keys, and shows who trusted which key when."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.common import end_with, named_hosts
from fleet.model.errors import FleetError, InputError
from fleet.model.inventory import Host
from fleet.transport.trust import check_offer, offered_key, trust_host
from fleet.transport.trustlog import log_path, read


def trust(
    inventory: opt.Inventory,
    host: opt.Hosts = None,
    limit: opt.Limit = None,
    reflashed: Annotated[
        bool,
        typer.Option(
            "--reflashed",
            help="Replace a trusted key by the key of now, for example after the board was "
            "flashed again.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Trust the keys without asking.")
    ] = False,
    log: Annotated[
        bool, typer.Option("--log", help="Only show which keys were trusted and when.")
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Show the ssh key of a device, and trust it (in fleet's own known_hosts, with a log).

    Example: fleet trust evk-07 -i inventories/evks.yaml
    """
    hosts = named_hosts(inventory, limit, host)
    if log:
        _show_log(hosts, as_json=as_json)
        return
    rows: list[dict[str, object]] = []
    failures: list[FleetError | None] = []
    for target in hosts:
        if target.transport != "ssh" and len(hosts) > 1:
            shown = {"host": target.name, "outcome": "not needed"}
            rows.append({**shown, "transport": target.transport})
            continue
        try:
            rows.append(_trust(target, reflashed=reflashed, yes=yes, quiet=as_json))
        except FleetError as error:
            error.device = error.device or target.name
            rows.append({"host": target.name, "outcome": "failed", "error": error})
            failures.append(error)
            output.show_error(error)
    if as_json:
        output.emit_json(rows)
    end_with(failures, not failures)


def _trust(host: Host, *, reflashed: bool, yes: bool, quiet: bool) -> dict[str, object]:
    offer = offered_key(host)
    row = {"host": host.name, "key": offer.kind, "offered": offer.fingerprint, "was": offer.pinned}
    tell = output.note if quiet else output.say
    tell(f"{host.name} offers {offer.kind} {offer.fingerprint}")
    if offer.pinned == offer.fingerprint:
        tell("  this key is already trusted")
        return {**row, "outcome": "unchanged"}
    if offer.pinned:
        tell(f"  trusted until now: {offer.pinned}")
    check_offer(host, offer, reflashed=reflashed)
    if not yes:
        _ask(host)
    trust_host(host, offer)
    tell(f"  the key is now trusted in {host.known_hosts}, and noted in {log_path(host).name}")
    return {**row, "outcome": "pinned"}


def _ask(host: Host) -> None:
    if not sys.stdin.isatty():
        raise InputError(
            "fleet cannot ask whether to trust the key: standard input is not a terminal",
            device=host.name,
            hint="compare the fingerprint above with that of the device, then: fleet trust "
            f"{host.name} --yes",
        )
    if not typer.confirm("Is this the fingerprint of the board?", err=True):
        raise InputError(
            "you answered no, so fleet does not trust the host key",
            device=host.name,
            hint="on the device: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
        )


def _show_log(hosts: tuple[Host, ...], *, as_json: bool) -> None:
    names = {host.name for host in hosts}
    paths = dict.fromkeys(log_path(host) for host in hosts)
    lines = [line for path in paths for line in read(path) if line.host in names]
    if as_json:
        output.emit_json(lines)
        return
    rows = [(a.time, a.host, a.why, a.old or "-", a.new, a.by) for a in lines]
    output.table("trust", ("when", "host", "why", "old", "new", "by"), rows, ("by", "why"))
