"""The Python API: what is exported, and the examples of docs/api.md as they stand there."""

from __future__ import annotations

import inspect
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fleet
from fleet.lab import Lab
from fleet.lab.namespace import can_unshare
from fleet.runtimes.store import RuntimeStore

ROOT = Path(__file__).parents[2]
SECONDS = 600
PAGE = (ROOT / "docs" / "api.md").read_text("utf-8")
EXPORTED = [
    "DeployOptions", "DeviceResult", "FleetError", "PushOptions", "__version__", "adb_device",
    "compare", "connection", "deploy", "diagnose", "diagnose_log", "exec", "get", "group", "load",
    "plan", "push", "records", "rollback", "run", "status",
]  # fmt: skip


def examples() -> list[str]:
    """The Python blocks of the page, in their order."""
    return re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_what_is_exported_is_what_the_page_names() -> None:
    assert sorted(fleet.__all__) == EXPORTED
    for name in EXPORTED:
        assert getattr(fleet, name)
        if name != "__version__":
            assert name in PAGE
    with pytest.raises(AttributeError):
        fleet.no_such_name  # noqa: B018
    assert (ROOT / "fleet" / "py.typed").is_file()


def test_options_are_given_by_name() -> None:
    classes = {"DeviceResult", "FleetError", "__version__"}
    selections = {"compare", "records"}  # whose defaults are those of the command line
    for name in set(EXPORTED) - classes - selections:
        function = getattr(fleet, name)
        for parameter in inspect.signature(function).parameters.values():
            positional = parameter.kind is not inspect.Parameter.KEYWORD_ONLY
            assert not (positional and parameter.default is not inspect.Parameter.empty)


@pytest.mark.qairt
def test_the_examples_run_one_after_the_other(tmp_path: Path, qairt_store: RuntimeStore) -> None:
    if why := can_unshare():
        pytest.skip(f"no namespace boards here: {why}")
    for name in ("inventories", "playbooks", "assets"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "inventories").unlink()
    (tmp_path / "inventories").mkdir()
    (tmp_path / "inventories" / "lab.yaml").write_text(
        (ROOT / "inventories" / "lab.yaml").read_text("utf-8"), "utf-8"
    )
    home = tmp_path / "home"
    home.mkdir()
    (home / "runtimes").symlink_to(qairt_store.root)
    assert len(examples()) >= 5
    said = []
    with Lab.up(tmp_path / ".lab", count=1, base_port=0):
        for example in examples():
            done = subprocess.run(
                [sys.executable, "-W", "error", "-c", example], cwd=tmp_path, text=True,
                capture_output=True, check=False, timeout=SECONDS,
                env={"HOME": str(tmp_path), "FLEET_HOME": str(home), "PATH": "/usr/bin:/bin"},
            )  # fmt: skip
            assert done.returncode == 0, f"{example}\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
            said.append(done.stdout)
    assert "+" not in said[0]
    assert said[0].startswith("lab001 planned release ")
    assert "tokens/s, emulated: True" in said[1]
    _check_events(said[2])
    assert said[3].startswith("False 3 Linux\n")
    assert re.search(r"^prompts installed \S+@\S+ previous: [0-9a-f]+$", said[3], re.MULTILINE)
    assert said[3].endswith("('os-release',) {}\n")
    assert re.search(r"^\d+ runs of {'lab001'} emulated: True$", said[4], re.MULTILINE)
    assert re.search(r"^lab001 decode_tps .+ emulated: True$", said[4], re.MULTILINE)
    assert "lab001 healthy" in said[5]
    assert said[6] == f"{platform.machine()}\nlab001 lab001\n"
    assert said[7].startswith("2 ")


def _check_events(said: str) -> None:
    """Steps, their bytes and the ends came, each with its device."""
    assert all(line.startswith("lab001: ") for line in said.splitlines())
    assert re.search(r"^lab001: (\d+) of \1 bytes$", said, re.MULTILINE)
    assert "lab001: switch: " in said
    assert "lab001: run: " in said
    assert re.search(r"^lab001: changed in \d+ round trips$", said, re.MULTILINE)
    assert re.search(r"^lab001: ran in \d+ round trips$", said, re.MULTILINE)
