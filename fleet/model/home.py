"""Where fleet keeps its own things on the workstation."""

from __future__ import annotations

import os
from pathlib import Path


def fleet_home() -> Path:
    """`$FLEET_HOME`, else `$XDG_DATA_HOME/fleet`, else `~/.local/share/fleet`."""
    own = os.environ.get("FLEET_HOME")
    if own:
        return Path(own).expanduser()
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path("~/.local/share").expanduser()) / "fleet"
