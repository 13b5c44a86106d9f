"""The house: one direction of imports, third parties only where they belong, small rooms."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "fleet"

# Top to bottom; a room may import itself and the rooms below it.
ROOMS = (
    "cli",
    "lab",
    "selftest",
    "doctor",
    "engine",
    "serving",
    "runners",
    "verify",
    "profiles",
    "ops",
    "bundles",
    "runtimes",
    "facts",
    "transport",
    "triage",
    "content",
    "config",
    "data",
    "device",
    "model",
)
# lab stands beside the engine, not on it: it knows boards, not deploys.
LAB_MAY = {"lab", "model", "data"}
OWNERS = {
    "fabric": {"transport"},
    "paramiko": {"transport"},
    "cryptography": {"lab"},
    "adbutils": {"transport"},
    "httpx": {"runtimes", "serving"},
    "elftools": set(),  # the tests' second opinion
    "re2": {"triage"},
    "jinja2": {"config"},
    "typer": {"cli"},
    "xxhash": {"content"},
    "rich": {"cli"},
    "yaml": {"config", "data", "bundles", "lab", "runtimes"},
    "msgspec": {"config", "model", "runners", "triage"},
    "pydantic": {"config"},
    "pysequoia": set(),  # an extra, loaded by name
    "distributed": {"engine"},
    "numpy": {"profiles", "verify"},
    "pyarrow": {"profiles"},
    "qai_hub": {"bundles"},
    "vl_convert": {"profiles"},
}
MAX_MODULE_LINES = 600  # CONTRIBUTING.md, "Rules", has the same figures
MAX_FUNCTION_LINES = 50

MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


TREES = {path: ast.parse(path.read_text("utf-8")) for path in MODULES}
NAMES = {name_of(path): path for path in MODULES}


def imports(path: Path) -> list[tuple[str, int]]:
    """Names of imported modules with their lines, those for type checkers among them."""
    found = []
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            parts = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = {part if part in NAMES else node.module or "" for part in parts}
            found += [(module, node.lineno) for module in modules]
    return found


def test_every_folder_is_a_room() -> None:
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {"__pycache__"}
    assert rooms == set(ROOMS)


def test_imports_go_one_way() -> None:
    wrong = []
    for path in MODULES:
        room = room_of(path)
        if not room:
            continue
        below = set(ROOMS[ROOMS.index(room) :])
        allowed = LAB_MAY if room == "lab" else below - ({"lab"} if room != "cli" else set())
        for name, line in imports(path):
            top, _, rest = name.partition(".")
            target = rest.split(".")[0]
            if top == "fleet" and rest and target not in allowed:
                wrong.append(f"{path}:{line}: {room} imports {target}")
            if "device" in path.parts:  # the device has its own packages
                continue
            if top in OWNERS and room not in OWNERS[top]:
                wrong.append(f"{path}:{line}: {top} belongs to {OWNERS[top]}")
    assert wrong == []


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that reach each other, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in graph:
        if name not in index:
            visit(name)
    return sorted(found)


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set(), "d": {"a", "c"}}) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {
        name: {other for other, _ in imports(path) if other in NAMES} - {name}
        for name, path in NAMES.items()
    }
    assert circles(graph) == []


def too_long(name: str, lines: int, tree: ast.Module) -> list[str]:
    """Return what of a module is over the ceiling: itself, and each function."""
    wrong = []
    if lines > MAX_MODULE_LINES:
        wrong.append(f"{name} has {lines} lines, more than {MAX_MODULE_LINES}")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or 0) - node.lineno + 1
            if size > MAX_FUNCTION_LINES:
                wrong.append(
                    f"{name}: {node.name} has {size} lines, more than {MAX_FUNCTION_LINES}"
                )
    return wrong


def test_modules_and_functions_are_below_the_ceiling() -> None:
    found = [
        too_long(str(path), path.read_text("utf-8").count("\n"), tree)
        for path, tree in TREES.items()
    ]
    assert [problem for problems in found for problem in problems] == []


def test_the_ceiling_is_the_one_of_the_page() -> None:
    function = ast.parse("def first():\n" + "    pass\n" * MAX_FUNCTION_LINES)
    assert too_long("x", MAX_MODULE_LINES, ast.parse("")) == []
    assert len(too_long("x", MAX_MODULE_LINES + 1, function)) == 2
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rule = (
        f"A module has at most {MAX_MODULE_LINES} lines, a function at most {MAX_FUNCTION_LINES}."
    )
    assert rule in page


def test_nothing_of_the_vendor_is_committed() -> None:
    names = [str(one) for one in ROOT.rglob("*") if ".venv" not in one.parts and one.is_file()]
    kept = [n for n in names if "/.git/" not in n and "/.cache/" not in n and "/.lab/" not in n]
    binaries = (".so", ".dll", ".cat", ".whl", ".zip")
    assert [n for n in kept if n.endswith(binaries)] == []
