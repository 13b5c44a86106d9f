"""`fleet config check|list|schema|trust`: files of the user, before a device is contacted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.config import trusted
from fleet.config.inventory import (
    InventoryReading,
    load_inventory,
    read_inventory,
    select,
    ssh_configs,
)
from fleet.config.powers import Power, powers
from fleet.config.ssh_files import lost_includes
from fleet.config.trusted import Distrust, fault_of
from fleet.model.errors import InputError
from fleet.model.inventory import Host

if TYPE_CHECKING:
    from fleet.transport.connection import Route

_FILE_HELP = "Inventory (of fleet, Ansible or pyinfra), ssh config, or playbook."
File = Annotated[Path | None, typer.Argument(metavar="FILE", help=_FILE_HELP)]
Option = Annotated[
    Path | None,
    typer.Option("--inventory", "-i", metavar="FILE", help="Inventory to check; the same as FILE."),
]
_FEW = 3
# Text in place of a value; RFC 2606 and RFC 5737 reserve the names and networks of examples.
_PLACEHOLDER = re.compile(
    r"<[^<>]*>|\$\{?\w+\}?|\{\{.*?\}\}|(?:^|@)(?:192\.0\.2|198\.51\.100|203\.0\.113)\.\d{1,3}$|"
    r"(?i:\b(?:your|my)[-_ ]?\w*(?:ip|host|board|device|address|user|name)\b|\byour[-_]|"
    r"\bchange[-_]?me\b|\btodo\b|\bx{2,}\b|"
    r"^(?:\d{1,3}|x{1,3})(?:\.(?:\d{1,3}|[a-z#*]{1,3})){0,2}\.[a-z#*]{1,3}$|"
    r"(?:^|[.@])example(?:\.(?:com|org|net))?$)"
)
_NAMED = re.compile(rb"^name:[ \t]+[^\s#{]", re.MULTILINE)  # in an inventory this would be a group


class SchemaKind(StrEnum):
    """The kinds of schema: files, the report of the doctor, a record of a run."""

    INVENTORY = "inventory"
    PLAYBOOK = "playbook"
    PROJECT = "project"
    CAUSE = "cause"
    DOCTOR = "doctor"
    RECORD = "record"


def _file(argument: Path | None, option: Path | None) -> Path:
    if argument is not None and option is not None and argument != option:
        raise InputError(
            "you gave two inventories: one as FILE and one with --inventory",
            hint="give only one inventory: fleet config check FILE",
        )
    return argument or opt.needed("inventory", option)


def check(file: File = None, inventory: Option = None, as_json: opt.Json = False) -> None:
    """Check an inventory or a playbook: list all errors, and what it can run or read here.

    Exit status 2 on errors. A file that is not trusted is checked too; nothing in it is run.


    Example: fleet config check inventories/evks.yaml
    """
    path = _file(file, inventory)
    if path.is_file() and _NAMED.search(path.read_bytes()):
        _check_playbook(path, as_json=as_json)
        return
    reading = read_inventory(path)
    if as_json:
        output.emit_json(_report(path, reading))
    else:
        _show(path, reading)
    if reading.errors:
        raise typer.Exit(InputError.exit_code)


def _check_playbook(path: Path, *, as_json: bool) -> None:
    from fleet.config.playbook import playbook_errors  # noqa: PLC0415 - loads its models

    errors, fault = playbook_errors(path), fault_of(path)
    if as_json:
        report = {"errors": errors, "untrusted": _doubt(fault)}
        output.emit_json({"file": str(path), **report})
    else:
        _warn_of(path, fault)
        for error in errors:
            output.show_error(error)
        count = _number(len(errors), "error") if errors else "no errors"
        typer.echo(f"{path}: playbook, {count}")
    if errors:
        raise typer.Exit(InputError.exit_code)


def _report(path: Path, reading: InventoryReading) -> dict[str, Any]:
    return {
        "file": str(path),
        "ansible": reading.ansible,
        "hosts": len(reading.inventory.hosts) if reading.inventory else None,
        "errors": reading.errors,
        "warnings": [*reading.warnings, *_missing(reading)],
        "ignored": [{"key": each.key, "position": str(each.position)} for each in reading.ignored],
        "untrusted": _doubt(next(filter(None, map(fault_of, _deciding(path, reading))), None)),
        "powers": _powers(reading),
    }


def _deciding(path: Path, reading: InventoryReading) -> list[Path]:
    """Return the files that decide what runs here: the inventory, and its ssh configs."""
    return [path, *ssh_configs(reading.inventory.hosts if reading.inventory else ())]


def _powers(reading: InventoryReading) -> list[Power]:
    return powers(reading.inventory.hosts) if reading.inventory else []


def _doubt(fault: Distrust | None) -> str | None:
    return None if fault is None else str(fault)


def _warn_of(path: Path, fault: Distrust | None) -> None:
    if fault is not None and fault.unknown:
        output.note(f"warning: {path} is on a Windows drive, which keeps no owners")
    elif fault is not None:
        output.note(f"warning: {path} is not trusted, and other commands refuse it: {fault}")


def _show_powers(rows: list[Power]) -> None:
    output.table(
        "On this workstation, the inventory makes fleet:",
        ("do", "what", "for", "sent to"),
        [(each.does, each.what, each.purpose, _some(each.sent_to)) for each in rows],
    )


def _some(words: Sequence[str]) -> str:
    more = f" and {len(words) - _FEW} more" if len(words) > _FEW else ""
    return ", ".join(words[:_FEW]) + more or "nobody"


def _show(path: Path, reading: InventoryReading) -> None:
    for file in _deciding(path, reading):
        _warn_of(file, fault_of(file))
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
    if rows := _powers(reading):
        _show_powers(rows)


def _number(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _missing(reading: InventoryReading) -> list[str]:
    """Return a remark for each file that hosts name and that does not exist on this computer."""
    if reading.inventory is None:
        return []
    hosts = reading.inventory.hosts
    named = [("identity_file", path) for host in hosts for path in host.identity_files]
    named += [("ssh_config", host.ssh_config) for host in hosts if host.ssh_config]
    gone = [(key, path) for key, path in dict.fromkeys(named) if not path.exists()]
    lines = [f"the file {path} of {key} does not exist on this computer" for key, path in gone]
    return [*lines, *_placeholders(hosts)]


def list_hosts(
    file: File = None, inventory: Option = None, limit: opt.Limit = None, as_json: opt.Json = False
) -> None:
    """List the hosts of an inventory, with groups and variables merged. Shows no secrets.

    Example: fleet config list inventories/evks.yaml --limit 'iq9,!evk-03'
    """
    path = _file(file, inventory)
    loaded = load_inventory(path)
    hosts = select(loaded, limit or ())
    routes = {host.name: _route(host) for host in hosts}
    resolved, configs = list[Host](), dict[Path, None]()
    for host, route in zip(hosts, routes.values(), strict=True):
        if route is None or isinstance(route, InputError):
            resolved.append(host)
            continue
        resolved.append(replace(host, address=route.address, user=route.user))
        configs |= {host.ssh_config: None} if host.ssh_config else {}
    notes = [*loaded.warnings, *_placeholders(resolved)]
    notes += [text for path in configs for text in lost_includes(path)]
    notes += [str(route) for route in routes.values() if isinstance(route, InputError)]
    for warning in dict.fromkeys(notes):
        output.note(f"warning: {warning}")
    if as_json:
        output.emit_json([_plain(host) | {"route": routes[host.name]} for host in hosts])
        return
    output.table(
        f"{path}: {_number(len(hosts), 'host')}",
        ("name", "transport", "address", "port", "user", "via", "groups", "soc"),
        [
            (host.name, host.transport, *_reached(host, routes[host.name]),
             ", ".join(host.groups), host.soc or "")
            for host in hosts
        ],
        ("soc", "port", "user", "transport", "groups", "via"),
    )  # fmt: skip


def _route(host: Host) -> Route | InputError | None:
    """Return the way to a host by its ssh config; the reason if the config cannot be used."""
    if host.transport != "ssh":
        return None
    from fleet.transport.connection import route_of  # noqa: PLC0415 - imports paramiko

    try:
        return route_of(host)
    except InputError as error:
        return error


def _reached(host: Host, route: Route | InputError | None) -> tuple[object, ...]:
    """Return address, port, user and jump hosts, for a table."""
    if route is None or isinstance(route, InputError):
        return host.serial or host.address, host.port or "", host.user or "", host.proxy_jump or ""
    return route.address, route.port or "", route.user or "", ", ".join(route.via)


def _placeholders(hosts: Sequence[Host]) -> list[str]:
    """Return a remark for each address and user name that is an example, not a real one."""
    return [
        f"the {what} of {host.name}, {text}, is a placeholder: write the one of your board in its "
        "place"
        for host in hosts
        for what, text in (
            ("address", host.address),
            ("user", host.user),
            ("jump host", host.proxy_jump),
        )
        if text and _PLACEHOLDER.search(text)
    ]


def _plain(host: Host) -> dict[str, Any]:
    """Return a host for JSON. A secret appears only as its reference."""
    values = {field.name: getattr(host, field.name) for field in fields(host)}
    for name in ("key_passphrase", "password", "become_password"):
        values[name] = values[name] and values[name].reference
    return {**values, "base_dir": host.base_dir or None, "labels": dict(host.labels)}


def schema(
    kind: Annotated[SchemaKind, typer.Argument(help="Kind of file, or of JSON that fleet prints.")],
) -> None:
    """Print the JSON Schema of a file, for editors and CI.

    Example: fleet config schema playbook > playbook.schema.json
    """
    from fleet.config import schema as schemas  # noqa: PLC0415 - loads the models of all files

    output.emit_json(schemas.schema(kind.value))


def trust(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Folder; without it: list the folders.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Trust the folder no longer.")] = False,
    as_json: opt.Json = False,
) -> None:
    """Trust the inventories and playbooks of a folder that other users can change.

    Example: fleet config trust /srv/lab/boards
    """
    if folder is None:
        if remove:
            raise InputError(
                "--remove needs a folder", hint="fleet config trust (lists the trusted folders)"
            )
        folders = [str(each) for each in trusted.folders()]
        output.answer(folders, "\n".join(folders) or "no folder is trusted", as_json=as_json)
        return
    real = trusted.distrust(folder) if remove else trusted.trust(folder)
    word = "no longer trusted" if remove else "trusted, with all that is in it"
    output.answer({"folder": str(real), "trusted": not remove}, f"{real}: {word}", as_json=as_json)
