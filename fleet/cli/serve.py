"""`fleet serve`: the model of a playbook as a service on its devices."""

from __future__ import annotations

import contextlib
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fleet.cli import output
from fleet.cli.common import DEFAULT_PARALLEL, end_devices, hosts_of
from fleet.cli.live import listening
from fleet.cli.options import (
    InventoryOption,
    JsonOption,
    LimitOption,
    OfflineOption,
    ParallelOption,
    PlaybookArgument,
)
from fleet.cli.results import show_devices, show_errors
from fleet.config.playbook import load_playbook
from fleet.engine.operation import Operation, Options
from fleet.engine.pool import DeviceResult
from fleet.engine.serving.service import Serving
from fleet.engine.serving.tunnel import Tunnel
from fleet.engine.session import Session
from fleet.model.errors import InputError
from fleet.model.events import Listener
from fleet.model.files import human_bytes
from fleet.model.secret import Secret


class Unit(StrEnum):
    """Who keeps the server running."""

    auto = "auto"
    user = "user"
    system = "system"
    none = "none"


UnitOption = Annotated[
    Unit,
    typer.Option(
        "--unit",
        help="Who keeps it: systemd of the user, of the system (root), or none: our supervisor.",
    ),
]


def register(root: typer.Typer) -> None:
    """Add the group `serve`."""
    group = typer.Typer(no_args_is_help=True, help="A model as a service on its devices.")
    for command in (start, status, stop, restart, logs, tunnel, token):
        group.command()(command)
    root.add_typer(group, name="serve")


def start(
    playbook: PlaybookArgument,
    inventory: InventoryOption,
    limit: LimitOption = None,
    unit: UnitOption = Unit.auto,
    offline: OfflineOption = False,
    parallel: ParallelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start the service with the deployed release, and wait until it is ready.

    Example: fleet serve start playbooks/tiny-service.yaml -i inventories/lab.yaml
    """
    _start(playbook, inventory, limit, unit, offline, parallel, as_json, again=False)


def restart(
    playbook: PlaybookArgument,
    inventory: InventoryOption,
    limit: LimitOption = None,
    unit: UnitOption = Unit.auto,
    offline: OfflineOption = False,
    parallel: ParallelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop the service and start it with the release that is deployed now.

    Example: fleet serve restart playbooks/tiny-service.yaml -i inventories/lab.yaml
    """
    _start(playbook, inventory, limit, unit, offline, parallel, as_json, again=True)


def _start(
    playbook: Path,
    inventory: Path,
    limit: list[str] | None,
    unit: Unit,
    offline: bool,
    parallel: int | None,
    as_json: bool,
    *,
    again: bool,
) -> None:
    loaded, hosts = load_playbook(playbook), hosts_of(inventory, limit)
    with listening(as_json=as_json) as listener:
        serving = Serving(loaded, hosts, listener)
        options = Options(run="never", offline=offline, parallel=parallel)
        operation = Operation(loaded, hosts, listener, options=options)
        results = serving.start(operation, unit=unit.value, again=again)
    if not as_json:
        show_devices(f"serve {loaded.name}", results)
        if any(one.fine for one in results):
            output.note(f"next: fleet serve tunnel {playbook} -i {inventory}")
    end_devices(results)


def _serving(
    playbook: Path, inventory: Path, limit: list[str] | None, parallel: int | None = None
) -> Serving:
    hosts = hosts_of(inventory, limit)
    many = parallel or DEFAULT_PARALLEL
    return Serving(load_playbook(playbook), hosts, _silent, parallel=many)


def _silent(_: object) -> None:
    return None


def status(
    playbook: PlaybookArgument,
    inventory: InventoryOption,
    limit: LimitOption = None,
    parallel: ParallelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show whether the service runs, who keeps it, and which release it serves. Reads only.

    Example: fleet serve status playbooks/tiny-service.yaml -i inventories/lab.yaml
    """
    results = _serving(playbook, inventory, limit, parallel).status()
    if as_json:
        _emit(results)
    else:
        output.table("service", _COLUMNS, [_row(one) for one in results])
    show_errors(results)
    end_devices(results)


_COLUMNS = (
    "device", "state", "kept by", "release", "deployed", "port", "pid", "memory", "queue",
    "restarts", "emulated",
)  # fmt: skip


def _row(one: DeviceResult) -> tuple[object, ...]:
    said = one.details
    health = said.get("health")
    health = health if isinstance(health, dict) else {}
    rss = health.get("rss_bytes")
    memory = human_bytes(rss) if isinstance(rss, int) else "-"
    keeper = {"user": "systemd (user)", "system": "systemd", "none": "fleet"}
    return (
        one.host.name,
        one.text,
        keeper.get(str(said.get("kept_by")), "-"),
        said.get("release") or "-",
        said.get("current") or "-",
        said.get("port", "-"),
        said.get("pid") or "-",
        memory,
        health.get("queue", "-"),
        said.get("restarts") or 0,
        "yes" if said.get("emulated") else "no",
    )


def _emit(results: list[DeviceResult]) -> None:
    output.emit_json(
        [
            {"host": one.host.name, "outcome": one.outcome, "text": one.text, **one.details}
            for one in results
        ]
    )


def stop(
    playbook: PlaybookArgument,
    inventory: InventoryOption,
    limit: LimitOption = None,
    parallel: ParallelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop the service; a request that runs may end within `stop_timeout`.

    Example: fleet serve stop playbooks/tiny-service.yaml -i inventories/lab.yaml
    """
    results = _serving(playbook, inventory, limit, parallel).stop()
    if as_json:
        _emit(results)
    else:
        show_devices("serve stop", results)
    end_devices(results)


def logs(
    playbook: PlaybookArgument,
    inventory: InventoryOption,
    limit: LimitOption = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, max=10_000, help="How many lines.")
    ] = 50,
    as_json: JsonOption = False,
) -> None:
    """Show the end of the service's log.

    Example: fleet serve logs playbooks/tiny-service.yaml -i inventories/lab.yaml -n 100
    """
    results = _serving(playbook, inventory, limit).logs(lines)
    if as_json:
        _emit(results)
    else:
        for one in results:
            for line in str(one.details.get("log", "")).splitlines():
                output.say(f"{one.host.name}: {line}")
    show_errors(results)
    end_devices(results)


def token(
    playbook: PlaybookArgument,
    inventory: InventoryOption,
    limit: LimitOption = None,
    new: Annotated[
        bool, typer.Option("--new", help="Make another one; the old one ends at once.")
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option("--save", help="Write it as a header into this file (0600), for curl -H @."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the token of the service, or keep it in a file. The only command that shows it.

    Example: fleet serve token playbooks/tiny-service.yaml -i lab.yaml -l lab001 --save token
    """
    results = _serving(playbook, inventory, limit).token(new=new)
    found = {
        one.host.name: value.reveal()
        for one in results
        if isinstance(value := one.details.get("token"), Secret)
    }
    if save is not None:
        if len(results) != 1:
            raise InputError("a file holds the token of one device", hint="--limit HOST")
        for value in found.values():
            _keep(save, value)
            output.advise(f"next: fleet serve tunnel (prints what to type with {save})")
    elif as_json:
        output.emit_json([{"host": name, "token": value} for name, value in found.items()])
    else:
        for name, value in found.items():
            output.literal(value if len(results) == 1 else f"{name} {value}")
    show_errors(results)
    end_devices(results)


def _keep(path: Path, value: str) -> None:
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "w", encoding="utf-8") as stream:
            stream.write(f"Authorization: Bearer {value}\n")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def tunnel(
    playbook: PlaybookArgument,
    inventory: InventoryOption,
    limit: LimitOption = None,
    local_port: Annotated[
        int, typer.Option("--local-port", min=0, max=65535, help="Port here; 0: a free one.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Open a port of this machine's loopback that leads to the service. Ctrl-C ends it.

    Example: fleet serve tunnel playbooks/tiny-service.yaml -i inventories/lab.yaml -l lab001
    """
    hosts = hosts_of(inventory, limit)
    if len(hosts) != 1:
        raise InputError(
            f"a tunnel leads to one device, and {len(hosts)} are meant", hint="--limit HOST"
        )
    loaded = load_playbook(playbook)
    if loaded.serve is None:
        raise InputError(f"{playbook} has no `serve:` section", hint="docs/serving.md")
    listener: Listener = _silent
    session = Session(hosts[0], listener)
    session.open()
    try:
        with Tunnel(session, loaded.serve.port, local=local_port, say=output.note) as opened:
            if as_json:
                output.emit_line({"url": opened.url, "device": hosts[0].name})
            else:
                output.say(f"{opened.url} leads to {loaded.name} on {hosts[0].name}")
                output.say(_example(playbook, inventory, hosts[0].name, opened.url))
            opened.wait()
    finally:
        session.close()


def _example(playbook: Path, inventory: Path, host: str, url: str) -> str:
    return (
        f"  fleet serve token {playbook} -i {inventory} -l {host} --save token\n"
        f"  curl -N -H @token -H 'Content-Type: application/json' {url}/generate/stream "
        '-d \'{"prompt": "What is an NPU?"}\''
    )
