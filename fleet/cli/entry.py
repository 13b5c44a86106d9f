"""The entry point of `fleet`. A shell that requests suggestions gets its answer at once."""

from __future__ import annotations

import sys

SYSTEMS = "Linux, macOS and WSL2"


def main() -> None:
    """Run the command line, or print the suggestions of the TAB key."""
    _refuse_other_systems()
    from fleet.cli import completion  # noqa: PLC0415 - after the check of the system

    if completion.asked():
        completion.answer()
        return
    from fleet.cli.main import main as command_line  # noqa: PLC0415 - typer

    command_line()


def _refuse_other_systems() -> None:
    """Exit with one sentence if Python has no module `fcntl`, which fleet needs."""
    try:
        import fcntl  # noqa: F401, PLC0415 - missing on Windows
    except ImportError:
        here = "Windows" if sys.platform == "win32" else sys.platform
        print(  # noqa: T201 - before a module of fleet is loaded
            f"error: fleet runs on {SYSTEMS}; this Python is one of {here}\n"
            "  try: wsl --install (then install fleet inside WSL2)",
            file=sys.stderr,
        )
        sys.exit(2)
