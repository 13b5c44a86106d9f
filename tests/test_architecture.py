"""The house: one direction of imports, third parties only where they belong, small rooms."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "fleet"

# Top to bottom; a room may import itself and the rooms below it.
ROOMS = (
    "cli",
    "lab",
    "doctor",
    "engine",
    "serving",
    "runners",
    "profiles",
    "ops",
    "aihub",
    "bundles",
    "runtimes",
    "facts",
    "transport",
    "triage",
    "config",
    "data",
    "model",
)
# lab stands beside the engine, not on it: it knows boards, not deploys.
LAB_MAY = {"lab", "model", "data"}
OWNERS = {
    "paramiko": {"transport"},
    "adbutils": {"transport"},
    "fabric": {"transport"},
    "httpx": {"runtimes", "serving"},
    "elftools": {"runtimes"},
    "re2": {"triage"},
    "typer": {"cli"},
    "xxhash": {"bundles"},
    "rich": {"cli"},
    "yaml": {"config", "data", "bundles", "lab", "runtimes"},
    "pydantic": {"config", "model", "runners"},
    "pysequoia": {"config", "lab"},
    "distributed": {"engine"},
    "numpy": {"profiles"},
    "pyarrow": {"profiles"},
    "qai_hub": {"aihub"},
    "vl_convert": {"profiles"},
}
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 50

MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


def imports(path: Path) -> list[tuple[str, int]]:
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            found.append((node.module or "", node.lineno))
    return found


def test_every_folder_is_a_room() -> None:
    rooms = {one.name for one in PACKAGE.iterdir() if one.is_dir() and one.name != "__pycache__"}
    assert rooms == set(ROOMS)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    room = room_of(path)
    if not room:
        return
    below = set(ROOMS[ROOMS.index(room) :])
    allowed = LAB_MAY if room == "lab" else below - ({"lab"} if room != "cli" else set())
    for name, line in imports(path):
        top, _, rest = name.partition(".")
        if top == "fleet" and rest:
            target = rest.split(".")[0]
            assert target in allowed, f"{path}:{line}: {room} imports {target}"
        if top in OWNERS and "device" not in path.parts:  # the device has its own packages
            assert room in OWNERS[top], f"{path}:{line}: {top} belongs to {OWNERS[top]}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_and_functions_are_small(path: Path) -> None:
    text = path.read_text("utf-8")
    lines = text.count("\n")
    assert lines <= MAX_MODULE_LINES, f"{path} has {lines} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or 0) - node.lineno + 1
            assert size <= MAX_FUNCTION_LINES, f"{path}: {node.name} has {size} lines"


def test_nothing_of_the_vendor_is_committed() -> None:
    names = [str(one) for one in ROOT.rglob("*") if ".venv" not in one.parts and one.is_file()]
    kept = [n for n in names if "/.git/" not in n and "/.cache/" not in n and "/.lab/" not in n]
    binaries = (".so", ".dll", ".cat", ".whl", ".zip")
    assert [n for n in kept if n.endswith(binaries)] == []
