"""docs/device-programs.md lists what runs on a device, all of it and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "device-programs.md").read_text("utf-8")
DEVICE = ROOT / "fleet" / "device"


def test_each_program_is_listed_and_nothing_else() -> None:
    programs = {
        path.name
        for path in DEVICE.rglob("*.*")
        if path.parent != DEVICE
        and path.suffix in {".sh", ".ps1", ".py"}
        and path.name != "__init__.py"
    }
    names = re.findall(r"`([\w/]+\.(?:sh|ps1|py))`", PAGE)
    listed = {Path(name).name for name in names if not name.startswith("tests/")}
    ours = {path.name for path in (ROOT / "fleet").rglob("*.py")} - programs
    assert programs <= listed
    assert listed - ours == programs


def test_no_program_for_a_device_lies_elsewhere() -> None:
    elsewhere = [
        path
        for path in (ROOT / "fleet").rglob("*")
        if path.suffix in {".sh", ".ps1"}
        and not path.is_relative_to(DEVICE)
        and not path.is_relative_to(ROOT / "fleet" / "lab")
    ]
    assert elsewhere == []
    named = (ROOT / "fleet").rglob("device/**/*.py")
    assert [path for path in named if not path.is_relative_to(DEVICE)] == []
