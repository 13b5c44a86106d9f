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
OWNERS = {  # msgspec is for all: what is read or written is a Struct
    "fabric": {"transport"},
    "paramiko": {"transport"},
    "cryptography": {"lab"},
    "adbutils": {"transport"},
    "httpx": {"runtimes", "serving"},
    "elftools": set(),  # the tests' second opinion
    "re2": {"triage"},
    "jinja2": {"profiles"},
    "typer": {"cli"},
    "xxhash": {"content"},
    "rich": {"cli"},
    "yaml": {"config", "data", "bundles", "lab", "runtimes"},
    "pysequoia": set(),  # an extra, loaded by name
    "distributed": {"engine"},
    "numpy": {"profiles", "verify"},
    "pyarrow": {"profiles"},
    "qai_hub": {"bundles"},
    "vl_convert": {"profiles"},
}
MAX_MODULE_LINES = 600  # CONTRIBUTING.md, "Rules", has the same figures
MAX_FUNCTION_LINES = 50
MAX_PARAMETERS = 8  # without self; a function with more has an object of options

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


# tempfile documents this one; qai_hub takes no other folder.
MAY_ASSIGN = {"tempfile.tempdir"}
CHANGES = {"pop", "setdefault", "update", "__setitem__", "__delitem__"}  # methods of a mapping


def foreign(tree: ast.AST) -> dict[str, str]:
    """Names in a module that are another library's, with what they are."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {
                (item.asname or item.name.partition(".")[0]): (
                    item.name if item.asname else item.name.partition(".")[0]
                )
                for item in node.names
            }
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {item.asname or item.name: f"{node.module}.{item.name}" for item in node.names}
    return {name: what for name, what in found.items() if not what.startswith("fleet.")}


def targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign | ast.Delete):
        return node.targets
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []


def owner(node: ast.AST) -> str:
    """The name at the beginning of `a.b["c"].d`, or ""."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def patches(source: str) -> list[str]:
    """What a module changes in another library: attributes of it, sys.modules, gc.disable()."""
    tree = ast.parse(source)
    found: list[str] = []
    names = foreign(tree)

    def is_modules(node: ast.AST) -> bool:
        return names.get(ast.unparse(node), ast.unparse(node)) == "sys.modules"

    def is_foreign(node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute):
            return owner(node) in names
        return isinstance(node, ast.Subscript) and is_modules(node.value)

    for node in ast.walk(tree):
        found += [ast.unparse(target) for target in targets(node) if is_foreign(target)]
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            method = node.func if isinstance(node.func, ast.Attribute) else None
            if (
                names.get(called, called) == "gc.disable"
                or (called == "setattr" and owner(node.args[0]) in names)
                or (method and method.attr in CHANGES and is_modules(method.value))
            ):
                found.append(ast.unparse(node))
    return [text for text in found if text not in MAY_ASSIGN]


def test_nothing_patches_another_library() -> None:
    """What stands in a library is its maker's: a subclass, an argument or a pin instead."""
    wrong = {
        str(path): found
        for path in MODULES
        if "device" not in path.parts and (found := patches(path.read_text("utf-8")))
    }
    assert wrong == {}


@pytest.mark.parametrize(
    "source",
    [
        "import typer.core\ntyper.core.TyperCommand.get_params = f",
        "import paramiko.config as config\nconfig.invoke = shell",
        "from paramiko import config\nconfig.invoke: object = shell",
        "import sys\nsys.modules['invoke'] = None",
        "from sys import modules\ndel modules['invoke']",
        "import sys\nsys.modules.pop('invoke', None)",
        "import dataclasses\nsetattr(dataclasses, 'exec', f)",
        "import gc\ngc.disable()",
        "from gc import disable\ndisable()",
    ],
)
def test_a_patch_is_seen(source: str) -> None:
    assert patches(source)


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.environ['A'] = 'b'",
        "self.x = 1",
        "import gc\ngc.collect()",
        "x = {}\nx['a'] = 1",
    ],
)
def test_what_is_no_patch(source: str) -> None:
    assert not patches(source)


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


def too_many(name: str, tree: ast.Module) -> list[str]:
    """Return each function of a module with too many named parameters."""
    wrong = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = sum(1 for each in every if each.arg not in {"self", "cls"})
            if count > MAX_PARAMETERS:
                wrong.append(f"{name}: {node.name} has {count} parameters")
    return wrong


def test_functions_have_few_parameters() -> None:
    """The commands of cli/ are apart: each parameter is an option that typer reads."""
    modules = {path: tree for path, tree in TREES.items() if "cli" not in path.parts}
    assert [line for path, tree in modules.items() for line in too_many(str(path), tree)] == []
    names = ", ".join(f"p{number}" for number in range(MAX_PARAMETERS))
    assert too_many("x", ast.parse(f"def f(self, {names}, *words, **others): ...")) == []
    assert len(too_many("x", ast.parse(f"def f({names}, *, more): ..."))) == 1


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
