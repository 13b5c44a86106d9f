"""A program that the device's loader would end is refused before a byte moves."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fleet.config.playbook import load_playbook
from fleet.engine.pool import DeviceResult
from fleet.runtimes.store import RuntimeStore
from tests import needs
from tests.bundles.conftest import DATA
from tests.bundles.elves import shared_object
from tests.runtimes.fakes import X86, elf, target_files, write_tree

from .conftest import Bench


def program(folder: Path, *libraries: str) -> Path:
    """One of C that is linked with empty libraries of these names."""
    for name in libraries:
        subprocess.run(
            [needs.compiler(), "-shared", "-x", "c", "/dev/null", "-o", str(folder / name),
             f"-Wl,-soname,{name}"], check=True,
        )  # fmt: skip
    path = folder / "mine"
    subprocess.run(
        [needs.compiler(), "-x", "c", "-", "-o", str(path), f"-L{folder}", "-Wl,--no-as-needed",
         *(f"-l:{name}" for name in libraries)],
        input=b"int main(void) { return 0; }", check=True,
    )  # fmt: skip
    return path


def deployed(bench: Bench, folder: Path, mine: Path, libraries: list[str]) -> DeviceResult[Any]:
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
    mine = program(tmp_path, "libnowhere.so.7")
    refused = deployed(bench, tmp_path, mine, [])
    assert "libnowhere.so.7, which the loader needs" in str(refused.error)
    assert refused.bytes_sent == 0
    sent = deployed(bench, tmp_path, mine, [str(tmp_path / "libnowhere.so.7")])
    assert sent.error is None, sent.error


def test_a_program_for_a_newer_glibc_is_refused(bench: Bench, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(
        shared_object("x86_64", elf_type=2, needed=("libc.so.6",), versions=("GLIBC_9.41",))
    )
    refused = deployed(bench, tmp_path, mine, [])
    assert "mine would not start: it needs GLIBC_9.41, but the device has glibc 2." in str(
        refused.error
    )
    assert refused.bytes_sent == 0


@pytest.mark.parametrize(("program", "there"), [("true", True), ("no-such-program", False)])
def test_a_program_of_the_device_is_looked_for(
    bench: Bench, tmp_path: Path, program: str, *, there: bool
) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "x").write_text("x")
    text = {
        "name": "own",
        "bundle": {"path": "bundle", "kind": "files"},
        "runtime": "none",
        "run": {"runner": "exec", "options": {"argv": ["env", "A={release}/bundle", program]}},
    }
    (tmp_path / "playbook.yaml").write_text(json.dumps(text))
    bench.playbook = load_playbook(tmp_path / "playbook.yaml")
    (result,) = bench.operation(offline=True).deploy()
    assert (result.error is None) == there, result.error
    if not there:
        assert "starts the program no-such-program, but the device does not" in str(result.error)
        assert result.bytes_sent == 0


@pytest.mark.parametrize("brought", [False, True], ids=["", "brought along"])
def test_a_program_of_the_sdk_is_looked_at_as_well(
    bench: Bench, tmp_path: Path, *, brought: bool
) -> None:
    """qnn-net-run of SDK 2.25 is linked with libpython3.10: 112 MB were sent, then status 127."""
    tool = program(tmp_path, "libnowhere.so.7")
    files = {f"lib/{X86}/{name}": data for name, data in target_files(machine=62).items()}
    files |= {f"lib/{X86}/libQnnSystem.so": elf(62), f"bin/{X86}/qnn-net-run": tool.read_bytes()}
    bench.store = RuntimeStore(tmp_path / "store")
    runtime = bench.store.add(write_tree(tmp_path / "sdk", files))
    (tmp_path / "bundle").mkdir()
    shutil.copy(DATA / "tiny_v73_soc77_qairt2.51.0.bin", tmp_path / "bundle")
    (tmp_path / "bundle" / "x.raw").write_bytes(b"x")
    text = {
        "name": "net-run",
        "bundle": {"path": "bundle", "kind": "qnn"},
        "runtime": runtime.version,
        "run": {
            "runner": "qnn-net-run",
            "options": {"inputs": [["x.raw"]]},
            "libraries": [str(tmp_path / "libnowhere.so.7")] if brought else [],
        },
    }
    (tmp_path / "playbook.yaml").write_text(json.dumps(text))
    bench.playbook = load_playbook(tmp_path / "playbook.yaml")
    (result,) = bench.operation().plan()
    assert result.plan is not None, result.error
    said = [one.message for one in result.plan.findings if one.rule == "program-needs"]
    assert [text.partition(",")[0] for text in said] == (
        [] if brought else ["qnn-net-run would not start: libnowhere.so.7"]
    )
    assert ("lib/libnowhere.so.7" in [one.name for one in result.plan.manifest.files]) == brought
