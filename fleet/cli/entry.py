"""Where `fleet` begins: a shell that asks what could come next gets its answer at once."""

from __future__ import annotations

import gc

from fleet.cli import completion


def main() -> None:
    """The command line, or what TAB offers."""
    if completion.asked():
        completion.answer()
        return
    # Imports leave no garbage, and looking for it would take a tenth of the start.
    gc.disable()
    from fleet.cli import compiled  # noqa: PLC0415 - dataclasses

    compiled.install(__spec__.cached)
    from fleet.cli.main import main as command_line  # noqa: PLC0415 - typer

    command_line()
