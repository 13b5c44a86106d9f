"""Options that many commands share, and `-o`, which every command with `--json` has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import typer
import typer.core

from fleet.cli import output, project
from fleet.model.errors import InputError

_F = TypeVar("_F", bound=Callable[..., Any])


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command for typer, with the fields of its dataclass parameters as options.

    A command with many options can so have them in one object, which may contain other objects.
    """
    hints = get_type_hints(command, include_extras=True)
    kinds = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    flat: list[Parameter] = []
    for each in signature(command).parameters.values():
        hint = hints[each.name]
        option = each.replace(kind=Parameter.KEYWORD_ONLY, annotation=hint)
        flat += _spread(hint) if each.name in kinds else [option]

    @wraps(command)
    def run(**values: Any) -> None:  # noqa: ANN401 - the values that typer read
        for name, kind in kinds.items():
            values[name] = _gathered(kind, values)
        command(**values)

    run.__signature__ = Signature(flat)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in flat}
    return run


def _spread(kind: Any) -> Iterator[Parameter]:  # noqa: ANN401 - a dataclass
    hints = get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        hint = hints[each.name]
        if is_dataclass(hint):
            yield from _spread(hint)
        else:
            yield Parameter(
                each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=hint
            )


def _gathered(kind: Any, values: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return an object of a dataclass, and remove its values from those that typer read."""
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{
        each.name: _gathered(hints[each.name], values)
        if is_dataclass(hints[each.name])
        else values.pop(each.name)
        for each in fields(kind)
    })  # fmt: skip


def needed(name: str, given: Path | None = None) -> Path:
    """Return the given file, else that of the environment or the project. Raises InputError."""
    return given or project.needed(name)


def _file(name: str) -> Callable[[typer.Context, Path | None], Path | None]:
    def take(context: typer.Context, value: Path | None) -> Path | None:
        of_a_run = any(context.params.get(word) for word in ("resume", "runs", "force_inputs"))
        return value if context.resilient_parsing or of_a_run else needed(name, value)

    return take


def refuse_others(
    context: typer.Context, mode: str, used: Collection[str], needs: Mapping[str, str] | None = None
) -> None:
    """Raise InputError for parameters of the command line that have no effect with `mode`.

    `used` are the parameters that `mode` reads; `needs` names the option that others require.
    """
    for param in context.command.params:
        source = context.get_parameter_source(param.name or "")
        if param.name in used or source is None or source.name != "COMMANDLINE":
            continue
        name = max(param.opts, key=len)
        name = name if name.startswith("-") else name.upper()
        needed_by = (needs or {}).get(param.name or "")
        raise InputError(
            f"{name} has no effect {f'without {needed_by}' if needed_by else f'with {mode}'}",
            hint=f"add {needed_by}" if needed_by else f"leave out {name}",
        )


def house(name: str) -> Callable[[typer.Context, Any], Any]:
    """Return a callback that takes the value of fleet.yaml for a missing option."""

    def take(context: typer.Context, value: Any) -> Any:  # noqa: ANN401 - the type of the option
        if value is not None or context.resilient_parsing:
            return value
        return project.of_project(name)

    return take


def _none() -> None:
    """Return None as the default of a file; the callback `_file` finds the file."""


# Panels of `--help` for options that are not needed every day.
LOCK, WAVES, CONTINUE, RARE = "Lock file", "Waves of devices", "Earlier runs", "Rarely needed"

Inventory = Annotated[
    Path,
    typer.Option(
        "--inventory",
        "-i",
        help="Inventory file (YAML). Default: that of fleet.yaml.",
        default_factory=_none,
        callback=_file("inventory"),
        envvar=project.VARIABLES["inventory"],
        show_default=False,
    ),
]
LIMIT_HELP = "Only these devices: names, groups, globs, '~regex', 'group[0:2]', '!not', '&and'."
Limit = Annotated[list[str] | None, typer.Option("--limit", "-l", metavar="HOSTS", help=LIMIT_HELP)]
Hosts = Annotated[list[str] | None, typer.Argument(metavar="[HOST]...", help="Same as --limit.")]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Same as -o json.",
        hidden=True,
        callback=lambda value: value or output.shape in {"json", "yaml"},
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show every detail.")]
Parallel = Annotated[
    int | None,
    typer.Option(
        "--parallel",
        "-p",
        min=1,
        metavar="N",
        help="How many devices to work on at the same time.",
        callback=house("parallel"),
    ),
]
Lease = Annotated[
    bool,
    typer.Option(
        "--lease", help="Lock the boards, so that nobody else deploys to them during this command."
    ),
]
AcceptNew = Annotated[
    bool,
    typer.Option(
        "--accept-new",
        help="Trust the ssh host key of each device that fleet connects to for the first time.",
    ),
]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify",
        help="Check file hashes on the device, not only sizes (slow).",
        rich_help_panel=RARE,
    ),
]
Offline = Annotated[bool, typer.Option("--offline", help="Download nothing; use stored runtimes.")]
Executor = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=RARE,
        help="Work on the devices from the workers of a dask cluster: dask://SCHEDULER:PORT.",
        callback=house("executor"),
    ),
]
Playbook = Annotated[
    Path,
    typer.Argument(
        help="Playbook file (YAML). Default: that of fleet.yaml.",
        default_factory=_none,
        callback=_file("playbook"),
        envvar=project.VARIABLES["playbook"],
        show_default=False,
    ),
]
LockFile = Annotated[
    Path | None,
    typer.Option(
        rich_help_panel=LOCK,
        help="Path of the lock file. Default: fleet.lock in the folder of the playbook.",
    ),
]
AllowReboot = Annotated[
    bool,
    typer.Option(
        "--allow-reboot", help="Allow fleet to reboot devices if a change needs a reboot."
    ),
]
Records = Annotated[
    Path | None, typer.Option("--output", help="Folder in which to store the results of the runs.")
]
Store = Annotated[
    Path | None,
    typer.Option(help="Where the results are: the --output folder of `fleet run`, or a .db file."),
]


def _shape(context: typer.Context, value: str | None) -> None:
    if not context.resilient_parsing:
        output.shape = value or ""


_shaped = typer.Typer()


@_shaped.command()
def _of(
    shape: Annotated[
        Literal["wide", "json", "yaml", "name"] | None,
        typer.Option(
            "--format",
            "-o",
            metavar="FORMAT",
            help="Print wide (all columns), json, yaml, or name (only the names). --json is "
            "-o json.",
            callback=_shape,
            is_eager=True,
            expose_value=False,
        ),
    ] = None,
) -> None: ...


_SHAPE = typer.main.get_command(_shaped).params[0]


class FleetCommand(typer.core.TyperCommand):
    """A command that has `-o` if it has `--json`, and shows its arguments as they are typed."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401 - typer contains its own click
        """Return the options and arguments, `-o` last."""
        params = super().get_params(ctx)
        named = {param.name for param in params}
        taken = any({"-o", "--format"} & set(param.opts) for param in params)
        return [*params, _SHAPE] if "as_json" in named and not taken else params

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401
        """Return `[OPTIONS]`, then `SOURCES...` or `[PLAYBOOK]`; typer would write
        `{sources}...`.
        """
        arguments = [p for p in self.get_params(ctx) if p.param_type_name == "argument"]
        return [self.options_metavar or "", *map(_usage, arguments)]


def _usage(argument: Any) -> str:  # noqa: ANN401
    name = argument.metavar or str(argument.name).upper()
    if not argument.required and not name.startswith("["):
        name = f"[{name}]"
    return name + "..." * (argument.nargs != 1 and not name.endswith("..."))


class App(typer.Typer):
    """A group of commands of the class `FleetCommand`."""

    def command(self, name: str | None = None, **how: Any) -> Callable[[_F], _F]:  # noqa: ANN401
        """Return a decorator that registers a function as a command."""
        return super().command(name, **{"cls": FleetCommand, **how})


_TUNE_HELP = (
    "How to send the data, repeatable: carrier=ssh, bandwidth=50MB/s (all devices together), "
    "per-hub=2 (at one USB hub), compress=never, whole (no differences), relay (devices with one "
    "label `lan` copy from each other). See docs/transfer.md."
)
Tune = Annotated[
    list[str] | None,
    typer.Option("--tune", metavar="NAME=VALUE", help=_TUNE_HELP, rich_help_panel=RARE),
]
