"""The texts of the programs that run on a board."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_ROOT = Path(__file__).parent  # importlib.resources would take 15 ms


def path_of(name: str) -> Path:
    """The file of a program by its name: `switch.sh`, `probe.ps1`, `fleet_ort.py`.

    Raises KeyError for a name that no program has.
    """
    return _programs()[name]


def text_of(name: str) -> str:
    """The text of a program, as it stands in its file."""
    return path_of(name).read_text("utf-8")


def plain(text: str) -> str:
    """Shell text without the lines that are comments, which need not travel."""
    lines = text.splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("# ")) + "\n"


def python_text(folder: str, name: str) -> bytes:
    """A module of one of the programs in Python that go to the device as text."""
    return (_ROOT / folder / f"{name}.py").read_bytes()


@cache
def shell_text(name: str) -> str:
    """The script `<name>.sh` without its comments."""
    return plain(text_of(f"{name}.sh"))


@cache
def _programs() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for folder in ("sh", "powershell", "npu"):
        for path in (_ROOT / folder).rglob("*.*"):
            if path.suffix in {".sh", ".ps1", ".py"} and path.stem != "__init__":
                found[path.name] = path
    return found
