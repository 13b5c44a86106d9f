"""Where `fleet` begins: a shell that asks what could come next gets its answer at once."""

from __future__ import annotations

import sys

SYSTEMS = "Linux, macOS and WSL2"


def main() -> None:
    """The command line, or what TAB offers."""
    _refuse_other_systems()
    from fleet.cli import completion  # noqa: PLC0415 - behind the check of the system

    if completion.asked():
        completion.answer()
        return
    from fleet.cli.main import main as command_line  # noqa: PLC0415 - typer

    command_line()


def _refuse_other_systems() -> None:
    """End with one sentence where Python lacks what fleet cannot work without."""
    try:
        import fcntl  # noqa: F401, PLC0415 - what Windows lacks
    except ImportError:
        here = "Windows" if sys.platform == "win32" else sys.platform
        print(  # noqa: T201 - before anything of fleet is loaded
            f"error: fleet runs on {SYSTEMS}; this Python is one of {here}\n"
            "  try: wsl --install (then install fleet inside WSL2)",
            file=sys.stderr,
        )
        sys.exit(2)
