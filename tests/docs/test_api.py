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
    "DeployOptions", "FleetError", "__version__", "adb_device", "connection", "diagnose",
    "diagnose_log", "group", "load",
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
    for function in (fleet.load, fleet.diagnose, fleet.diagnose_log, fleet.DeployOptions):
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
    assert "tokens/s, emulated: True" in said[1]
    assert "lab001 healthy" in said[3]
    assert said[4] == f"{platform.machine()}\nlab001 lab001\n"
    assert said[5].startswith("2 ")
