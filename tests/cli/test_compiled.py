"""The code that dataclasses make is compiled once for an installation, and never wrong."""

from __future__ import annotations

import dataclasses
import inspect
import marshal
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.cli.compiled import Compiled

CACHED = f"entry.{sys.implementation.cache_tag}"
SOURCES = 5 if sys.version_info < (3, 13) else 1  # 3.13 compiles all methods of a class at once
CLASS = """
import builtins, dataclasses, sys
from fleet.cli import compiled
compiled.install(sys.argv[1])
made = []
compiled.compile = lambda *given: made.append(given) or builtins.compile(*given)
@dataclasses.dataclass(frozen=True, order=True)
class Point:
    x: int
    y: list[int] = dataclasses.field(default_factory=list)
one, two = Point(1), Point(2, [3])
assert one == Point(1) and one < two and repr(two).endswith("Point(x=2, y=[3])"), repr(two)
try:
    one.x = 5
except dataclasses.FrozenInstanceError:
    print(len(made))
"""


def compiled(folder: Path, **env: str) -> int:
    """How many sources a new Python compiles for one class."""
    done = subprocess.run(
        [sys.executable, "-c", CLASS, str(folder / f"{CACHED}.pyc")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **env},
    )
    return int(done.stdout)


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    first = compiled(tmp_path)
    assert first >= SOURCES
    assert [path.name for path in tmp_path.iterdir()] == [f"{CACHED}.dataclasses"]
    assert compiled(tmp_path) == 0


def test_bytecode_is_not_written_where_that_is_not_wanted(tmp_path: Path) -> None:
    assert compiled(tmp_path, PYTHONDONTWRITEBYTECODE="1") >= SOURCES
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_costs_nothing(tmp_path: Path) -> None:
    assert compiled(tmp_path / "none") >= SOURCES


@pytest.mark.parametrize(
    "kept",
    [b"", b"\xff\xfe", marshal.dumps([1]), b"[" * 40, marshal.dumps(compile("1", "", "eval"))],
)
def test_a_file_that_is_none_of_ours_is_replaced(tmp_path: Path, kept: bytes) -> None:
    (tmp_path / f"{CACHED}.dataclasses").write_bytes(kept)
    assert compiled(tmp_path) >= SOURCES
    assert compiled(tmp_path) == 0


def test_code_that_is_none_is_compiled_again(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(marshal.dumps({"n = 1": b"\xff", "n = 2": marshal.dumps(3)}))
    kept = Compiled(path)
    names: dict[str, int] = {}
    for source in ("n = 1", "n = 2"):
        kept.run(source, names)
        assert names["n"] == int(source[-1])


def test_the_standard_library_still_compiles_so() -> None:
    """A Python whose dataclasses use another function would gain nothing, and lose nothing."""
    code = dataclasses._create_fn if sys.version_info < (3, 13) else dataclasses._FuncBuilder  # type: ignore[attr-defined]
    assert "exec(" in inspect.getsource(code)
