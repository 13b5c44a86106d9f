"""mypy reports functions of `dataclasses` that are called on a Struct: they fail at run time."""

from __future__ import annotations

from pathlib import Path

from mypy import api

from tests.mypy_structs import INSTEAD

PLUGIN = Path(__file__).with_name("mypy_structs.py")
PROGRAM = """
from dataclasses import asdict, astuple, dataclass, fields, replace
from msgspec import Struct

class Made(Struct):
    size: int = 1

@dataclass
class Plain:
    size: int = 1

def check(made: Made | None) -> None:
    replace(Plain(), size=2)
    asdict(Plain())
    if made is not None:
        replace(made, size=2)
    asdict(Made())
    astuple(Made())
    fields(Made())
    vars(Made())
"""


def test_each_function_of_dataclasses_is_reported(tmp_path: Path) -> None:
    config = tmp_path / "mypy.ini"
    config.write_text(f"[mypy]\nplugins = {PLUGIN}\ncache_dir = {tmp_path}\n", "utf-8")
    said, _, status = api.run(["--config-file", str(config), "-c", PROGRAM])
    lines = [line for line in said.splitlines() if "on a msgspec.Struct" in line]
    assert status == 1
    assert [line.split(": error: ")[1].split()[0] for line in lines] == [
        "dataclasses.replace",
        "dataclasses.asdict",
        "dataclasses.astuple",
        "dataclasses.fields",
        "builtins.vars",
    ]
    assert len(lines) == len(INSTEAD)
