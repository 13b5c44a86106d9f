"""`fleet inventory check|list` and `fleet schema`: the two files, before a device is asked."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fleet.cli import output
from fleet.config.inventory import Reading, load_inventory, read_inventory, select
from fleet.model.errors import InputError
from fleet.model.inventory import Host

app = typer.Typer(no_args_is_help=True, help="Look at an inventory without asking a device.")

_FILE_HELP = "The inventory; fleet's own or an Ansible YAML inventory."
_LIMIT_HELP = "Only these hosts: names, groups, globs, '~regex', 'group[0:2]', '!not', '&and'."
File = Annotated[Path | None, typer.Argument(metavar="FILE", help=_FILE_HELP)]
Option = Annotated[
    Path | None, typer.Option("--inventory", "-i", metavar="FILE", help="The same as FILE.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")]


class Kind(StrEnum):
    """What has a schema: files, the report of the doctor, a record of a run."""

    INVENTORY = "inventory"
    PLAYBOOK = "playbook"
    CAUSE = "cause"
    DOCTOR = "doctor"
    RECORD = "record"


def register(root: typer.Typer) -> None:
    """Add the commands to the tree."""
    root.add_typer(app, name="inventory")
    root.command("schema")(print_schema)


def _file(argument: Path | None, option: Path | None) -> Path:
    if argument is not None and option is not None and argument != option:
        raise InputError("two inventories are given", hint="name one: FILE or --inventory FILE")
    path = argument or option
    if path is None:
        raise InputError(
            "no inventory is given", hint="fleet inventory check inventories/evks.yaml"
        )
    return path


@app.command("check")
def check(file: File = None, inventory: Option = None, as_json: AsJson = False) -> None:
    """Check an inventory and list all that is wrong or not used; exit status 2 on errors.

    Example: fleet inventory check inventories/evks.yaml
    """
    path = _file(file, inventory)
    reading = read_inventory(path)
    if as_json:
        output.emit_json(_report(path, reading))
    else:
        _show(path, reading)
    if reading.errors:
        raise typer.Exit(InputError.exit_code)


def _report(path: Path, reading: Reading) -> dict[str, Any]:
    return {
        "file": str(path),
        "ansible": reading.ansible,
        "hosts": len(reading.inventory.hosts) if reading.inventory else None,
        "errors": [error.as_dict() for error in reading.errors],
        "warnings": [*reading.warnings, *_missing(reading)],
        "ignored": [{"key": each.key, "position": str(each.position)} for each in reading.ignored],
    }


def _show(path: Path, reading: Reading) -> None:
    for error in reading.errors:
        output.show_error(error)
    for warning in (*reading.warnings, *_missing(reading)):
        output.note(f"warning: {warning}")
    count = Counter(each.key for each in reading.ignored)
    first = {each.key: each.position for each in reversed(reading.ignored)}
    for key, number in sorted(count.items()):
        times = f", {number} times" if number > 1 else ""
        output.note(f"ignored: {key} ({first[key]}{times})")
    if reading.inventory is None:
        output.note(f"{path}: {_number(len(reading.errors), 'error')}")
        return
    groups = [name for name in reading.inventory.groups if name not in {"all", "ungrouped"}]
    kind = "Ansible inventory, " if reading.ansible else ""
    typer.echo(
        f"{path}: {kind}{_number(len(reading.inventory.hosts), 'host')},"
        f" {_number(len(groups), 'group')}, no errors"
    )


def _number(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _missing(reading: Reading) -> list[str]:
    """Files that hosts name and that are not on this machine."""
    if reading.inventory is None:
        return []
    hosts = reading.inventory.hosts
    named = [("identity_file", path) for host in hosts for path in host.identity_files]
    named += [("ssh_config", host.ssh_config) for host in hosts if host.ssh_config]
    return [
        f"{key} {path} is not on this machine"
        for key, path in dict.fromkeys(named)
        if not path.exists()
    ]


@app.command("list")
def list_hosts(
    file: File = None,
    inventory: Option = None,
    limit: Annotated[list[str] | None, typer.Option("--limit", "-l", help=_LIMIT_HELP)] = None,
    as_json: AsJson = False,
) -> None:
    """List the hosts of an inventory, with groups and variables merged. Shows no secrets.

    Example: fleet inventory list inventories/evks.yaml --limit 'iq9,!evk-03'
    """
    path = _file(file, inventory)
    found = load_inventory(path)
    hosts = select(found, limit or ())
    for warning in found.warnings:
        output.note(f"warning: {warning}")
    if as_json:
        output.emit_json([_plain(host) for host in hosts])
        return
    output.table(
        f"{path}: {_number(len(hosts), 'host')}",
        ("name", "transport", "address", "port", "user", "groups", "soc"),
        [
            (
                host.name,
                host.transport,
                host.address,
                host.port or "",
                host.user or "",
                ", ".join(host.groups),
                host.soc or "",
            )
            for host in hosts
        ],
    )


def _plain(host: Host) -> dict[str, Any]:
    """A host for JSON. Of a secret only the reference is shown."""
    secrets = {
        key: ref.reference if ref else None
        for key, ref in (
            ("key_passphrase", host.key_passphrase),
            ("password", host.password),
            ("become_password", host.become_password),
        )
    }
    return {
        "name": host.name,
        "transport": host.transport,
        "address": host.address,
        "port": host.port,
        "user": host.user,
        "identity_files": [str(path) for path in host.identity_files],
        **secrets,
        "proxy_jump": host.proxy_jump,
        "ssh_config": str(host.ssh_config) if host.ssh_config else None,
        "known_hosts": str(host.known_hosts),
        "host_key": host.host_key,
        "connect_timeout": host.connect_timeout,
        "base_dir": host.base_dir or None,
        "soc": host.soc,
        "target": host.target,
        "serial": host.serial,
        "identity": host.identity,
        "groups": list(host.groups),
        "labels": dict(host.labels),
    }


def print_schema(
    kind: Annotated[Kind, typer.Argument(help="Which file.")],
) -> None:
    """Print the JSON Schema of a file, for editors and CI.

    Example: fleet schema playbook > playbook.schema.json
    """
    from fleet.config.schema import schema  # noqa: PLC0415 - the models of all files

    output.emit_json(schema(kind.value))
