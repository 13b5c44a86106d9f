"""Where `fleet` begins: a shell that asks what could come next gets its answer at once."""

from __future__ import annotations

from fleet.cli import completion


def main() -> None:
    """The command line, or what TAB offers."""
    if completion.asked():
        completion.answer()
        return
    from fleet.cli.main import main as command_line  # noqa: PLC0415 - typer

    command_line()
