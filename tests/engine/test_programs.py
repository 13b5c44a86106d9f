"""A program that the device's loader would end is refused before a byte moves."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from fleet.config.playbook import load_playbook
from fleet.engine.pool import DeviceResult

from .conftest import Bench


def program(folder: Path, *libraries: str) -> Path:
    """One of C that is linked with empty libraries of these names."""
    for name in libraries:
        subprocess.run(
            ["cc", "-shared", "-x", "c", "/dev/null", "-o", str(folder / name),
             f"-Wl,-soname,{name}"], check=True,
        )  # fmt: skip
    path = folder / "mine"
    subprocess.run(
        ["cc", "-x", "c", "-", "-o", str(path), f"-L{folder}", "-Wl,--no-as-needed",
         *(f"-l:{name}" for name in libraries)],
        input=b"int main(void) { return 0; }", check=True,
    )  # fmt: skip
    return path


def deployed(bench: Bench, folder: Path, mine: Path, libraries: list[str]) -> DeviceResult:
    (folder / "bundle").mkdir(exist_ok=True)
    (folder / "bundle" / "x").write_text("x")
    text = {
        "name": "own",
        "bundle": {"path": "bundle", "kind": "files"},
        "run": {"runner": "exec", "program": str(mine), "libraries": libraries},
    }
    (folder / "playbook.yaml").write_text(json.dumps(text))
    bench.playbook = load_playbook(folder / "playbook.yaml")
    (result,) = bench.operation().deploy()
    return result


@pytest.mark.qairt
def test_a_library_that_is_nowhere_is_named(bench: Bench, tmp_path: Path) -> None:
    assert shutil.which("cc")
    mine = program(tmp_path, "libnowhere.so.7")
    refused = deployed(bench, tmp_path, mine, [])
    assert "libnowhere.so.7, which the loader needs" in str(refused.error)
    assert refused.bytes_sent == 0
    sent = deployed(bench, tmp_path, mine, [str(tmp_path / "libnowhere.so.7")])
    assert sent.error is None, sent.error
