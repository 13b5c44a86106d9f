"""`fleet exec`: one command on many devices."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import rollout_options as rollout
from fleet.cli.common import DEFAULT_PARALLEL, end_devices, hosts_of
from fleet.cli.live import SaidLines
from fleet.cli.results import emit, show_errors, tell_holders
from fleet.config.inventory import load_inventory
from fleet.engine.everyday.execute import Executing, execute_everywhere
from fleet.model.deadline import parse_duration
from fleet.model.errors import InputError
from fleet.model.inventory import Host, Inventory

_Command = Annotated[
    list[str],
    typer.Argument(help="A shell command in quotes, or -- and then a program with its arguments."),
]
_Timeout = Annotated[str, typer.Option(help="Stop the command after this time: 90s, 5m.")]
_Sudo = Annotated[
    bool,
    typer.Option(
        "--sudo",
        help="Run the command as root. If sudo asks for a password, fleet uses "
        "`become_password` of the inventory.",
    ),
]
_Canary = Annotated[
    str | None,
    typer.Option(help="Run on these devices first: a number, a share like 5%, or name patterns."),
]
_Waves = Annotated[
    str | None,
    typer.Option(
        help="Run in waves: share of all devices that is done after each wave, like 5%,25%,100%."
    ),
]


def exec_(
    command: _Command,
    inventory: opt.Inventory,
    limit: opt.Limit = None,
    timeout: _Timeout = "60s",
    sudo: _Sudo = False,
    lease: opt.Lease = False,
    canary: _Canary = None,
    waves: _Waves = None,
    max_failed: rollout.MaxFailed = None,
    parallel: opt.Parallel = None,
    accept_new: opt.AcceptNew = False,
    as_json: opt.Json = False,
) -> None:
    """Run a command on devices. Each line of its output begins with the device name.

    With several devices in the inventory, select some with -l, or all of them with -l all.

    Takes no lease and says who holds a board.

    Example: fleet exec 'uname -a' -i inventories/lab.yaml --limit lab001
    """
    job = Executing(tuple(command), parse_duration(timeout), lease, sudo)
    spec = rollout.spec_of(None, rollout.RolloutFlags(canary, waves, max_failed))
    results = execute_everywhere(
        job,
        _targets(inventory, limit, command),
        (lambda _: None) if as_json else SaidLines().take,
        parallel=parallel or DEFAULT_PARALLEL,
        accept_new=accept_new,
        spec=spec,
    )
    if as_json:
        emit(results, "text", "seconds", "error")
    else:
        tell_holders(results)
        show_errors(results)
    end_devices(results)


def _targets(inventory: Path, limit: list[str] | None, command: Sequence[str]) -> tuple[Host, ...]:
    """Return the devices for `command`.

    Raises InputError if the command begins with the name of a device or a group. Also raises it if
    the inventory has several devices and the command line selects none. A name that was meant as a
    target must never run as a command on every device.
    """
    loaded = load_inventory(inventory)
    names = list(takewhile(lambda word: _selects(loaded, word), command))
    if names:
        raise InputError(
            f"'{names[0]}' is a device or a group of the inventory, not a command",
            hint=_line(names, command[len(names) :]),
        )
    hosts = hosts_of(inventory, limit)
    if not limit and len(hosts) > 1:
        raise InputError(
            f"the inventory has {len(hosts)} devices, and the command does not say which to use",
            hint=f"{_line(['all'], command)} (on all devices; -l NAME selects some)",
        )
    return hosts


def _selects(inventory: Inventory, word: str) -> bool:
    """Return True if each part of `word` is a device, a group or `all`."""
    names = {"all", *inventory.groups, *(host.name for host in inventory.hosts)}
    return all(part in names for part in word.split(","))


def _line(names: Sequence[str], command: Sequence[str]) -> str:
    """Return the command line that runs `command` on `names`."""
    words = ["fleet", "exec", *(word for name in names for word in ("-l", name))]
    if len(command) == 1:
        return shlex.join([*words, *command])
    return shlex.join([*words, "--", *(command or ("uname", "-a"))])
