"""A forked `fleet` does and says what `python -m fleet` does and says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm


@pytest.mark.parametrize(
    ("argv", "status"), [(("nonsense",), 2), (("doctor", "--explain", "14001"), 0)], ids=str
)
def test_status_and_texts_are_those_of_a_new_python(
    argv: tuple[str, ...], status: int, tmp_path: Path
) -> None:
    env = {**os.environ, "NO_COLOR": "1", "FLEET_HOME": str(tmp_path)}
    cold = subprocess.run(
        [sys.executable, "-m", "fleet", *argv], capture_output=True, text=True, check=False,
        cwd=tmp_path, env=env,
    )  # fmt: skip
    found = warm.fleet(*argv, cwd=tmp_path, env=env)
    assert (found.returncode, found.stdout, found.stderr) == (status, cold.stdout, cold.stderr)
    assert cold.returncode == status


def test_environment_folder_and_input_are_those_of_the_call(tmp_path: Path) -> None:
    (tmp_path / "here.log").write_text("Failed to create device: 14001")
    first = warm.fleet("doctor", "--log", "here.log", "--json", cwd=tmp_path)
    second = warm.fleet("doctor", "--log", "-", "--json", stdin="Failed to create device: 14001")
    assert first.returncode == second.returncode == 1, first.stderr + second.stderr
    gone = warm.fleet("doctor", "--log", "here.log", cwd=tmp_path.parent)
    assert "here.log" in gone.stderr
    assert gone.returncode == 2


def test_a_call_that_takes_too_long_is_ended() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        warm.fleet("doctor", "--list", timeout=0.001)
