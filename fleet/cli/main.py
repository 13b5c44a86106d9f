"""`fleet`: the command tree, and the one place where errors become exit codes."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated

import typer

from fleet import __version__
from fleet.cli import output
from fleet.model.errors import FleetError

# One module a group; each has `register(root)`.
MODULES = (
    "init",
    "inventory",
    "facts",
    "runtime",
    "bundle",
    "deploy",
    "resume",
    "push",
    "doctor",
    "status",
    "provision",
    "lockfile",
    "run",
    "runners",
    "profiles",
    "trust",
    "adb",
    "lock",
    "lab",
)

app = typer.Typer(
    name="fleet",
    help="Deploy, run and profile models on fleets of Qualcomm NPU devices.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"fleet {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Deploy, run and profile models on fleets of Qualcomm NPU devices."""


for _name in MODULES:
    importlib.import_module(f"fleet.cli.{_name}").register(app)


def main() -> None:
    """Run the command line; every FleetError becomes one message and its exit code."""
    try:
        app()
    except FleetError as error:
        output.show_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
