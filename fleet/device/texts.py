"""The texts of the programs that run on a board."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_ROOT = Path(__file__).parent  # importlib.resources would take 15 ms


def path_of(name: str) -> Path:
    """Return the file of a program by its name: `switch.sh`, `probe.ps1`, `fleet_ort.py`.

    Raises KeyError for an unknown name.
    """
    return _programs()[name]


def text_of(name: str) -> str:
    """Return the text of a program's file."""
    return path_of(name).read_text("utf-8")


def plain(text: str) -> str:
    """Return shell text without comment lines, which need not be sent."""
    lines = text.splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("# ")) + "\n"


def python_text(folder: str, name: str) -> bytes:
    """Return a module of a Python program that is sent to the device as text."""
    return (_ROOT / folder / f"{name}.py").read_bytes()


@cache
def shell_text(name: str) -> str:
    """Return the script `<name>.sh` without its comments."""
    return plain(text_of(f"{name}.sh"))


@cache
def _programs() -> dict[str, Path]:
    programs: dict[str, Path] = {}
    for folder in ("sh", "powershell", "npu"):
        for path in (_ROOT / folder).rglob("*.*"):
            if path.suffix in {".sh", ".ps1", ".py"} and path.stem != "__init__":
                programs[path.name] = path
    return programs
