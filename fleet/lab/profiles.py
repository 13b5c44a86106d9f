"""What a lab board claims to be: files under /sys and names under /dev."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from fleet.model.errors import LabError


@dataclass(frozen=True)
class Profile:
    """A board type. `sys` maps paths below /sys to contents, `nodes` are names below /dev."""

    name: str
    sys: Mapping[str, bytes]
    nodes: tuple[str, ...]

    def write_sys(self, root: Path) -> None:
        """Lay out the /sys tree under `root`."""
        for path, content in self.sys.items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


@cache
def _table() -> dict[str, Any]:
    text = (files("fleet.lab") / "profiles.yaml").read_text("utf-8")
    return dict(yaml.safe_load(text))


def profile(name: str) -> Profile:
    """The profile of that name; LabError with the known names otherwise."""
    row = _table().get(name)
    if row is None:
        raise LabError(f"there is no board profile '{name}'", hint="one of " + ", ".join(_table()))
    found = {f"devices/soc0/{key}": f"{value}\n".encode() for key, value in row["soc0"].items()}
    tree = "firmware/devicetree/base"
    found[f"{tree}/compatible"] = b"".join(text.encode() + b"\0" for text in row["compatible"])
    found[f"{tree}/model"] = row["model"].encode() + b"\0"
    for number, (kind, state) in enumerate(row["remoteproc"].items()):
        folder = f"class/remoteproc/remoteproc{number}"
        found[f"{folder}/name"] = f"{kind}\n".encode()
        found[f"{folder}/state"] = f"{state}\n".encode()
    for number, (kind, milli) in enumerate(row["thermal"].items()):
        folder = f"class/thermal/thermal_zone{number}"
        found[f"{folder}/type"] = f"{kind}\n".encode()
        found[f"{folder}/temp"] = f"{milli}\n".encode()
    return Profile(name, found, tuple(row["nodes"]))
