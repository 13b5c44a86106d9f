"""Draws docs/terminal.svg: `python -m tests.docs.picture` in a project whose boards are up.

It types the commands below, as they stand, and draws what they print; lab002 gets a fault before.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

PAGE = Path(__file__).parents[2] / "docs" / "terminal.svg"
COLUMNS = 88
FAULT = "fleet lab inject node-root-only -l lab002"
TYPED = ("fleet profiles show last", "fleet doctor")


def main() -> None:
    """Type, record, draw."""
    subprocess.run(FAULT.split(), check=True, stdout=subprocess.DEVNULL)
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115, PTH123
    for line in TYPED:
        done = subprocess.run(
            line.split(),
            env={
                **os.environ,
                "FORCE_COLOR": "1",
                "COLUMNS": str(COLUMNS),
                "TERM": "xterm-256color",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        console.print(Text(f"$ {line}", style="bold"))
        console.print(Text.from_ansi(done.stdout.decode()))
    drawn = console.export_svg(title="fleet")
    PAGE.write_text(re.sub(r"\s*@font-face {.*?}", "", drawn, flags=re.DOTALL), "utf-8")
    sys.stderr.write(f"wrote {PAGE}\n")


if __name__ == "__main__":
    main()
