"""Hang in a step of `deploy --only system` beside killed in it: rows of faults/stopping.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleet.lab import Lab
from tests.faults.stopping import ROWS, Row
from tests.faults.test_stopped import again, hang, kill

from .conftest import ROOT

pytestmark = pytest.mark.slow
each_row = pytest.mark.parametrize(
    "row", [row for row in ROWS if row.command == "provision"], ids=lambda row: row.step
)
SYSTEM = {"first": "1", "second": "2", "third": "3"}


@pytest.fixture
def board(
    labs: Callable[[str], Lab], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SimpleNamespace:
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
    lab = labs("bare-evk-nopasswd")
    lab.reset("lab001")
    there, known = lab.board("lab001"), lab.folder
    made = SimpleNamespace(
        playbook=tmp_path / "p.yaml", inventory=tmp_path / "i.yaml", home=tmp_path / "home", lab=lab
    )
    made.inventory.write_text(
        f"all:\n  hosts:\n    lab001: {{host: 127.0.0.1, port: {there.port}, user: {there.user},\n"
        f"      identity_file: {known.identity_file}, known_hosts: {known.known_hosts}}}\n"
    )
    files = "".join(f"    - {{path: /etc/{name}, content: '{SYSTEM[name]}'}}\n" for name in SYSTEM)
    made.playbook.write_text(
        f"name: app\nbundle: {ROOT / 'assets' / 'tiny-genie'}\nsystem:\n  files:\n{files}"
    )
    return made


def there(board: SimpleNamespace) -> str:
    shown = board.lab.exec("lab001", ["sh", "-c", "cd /etc; cat first second third"])
    return str(shown.stdout)


@each_row
def test_a_hang_in_a_step(board: SimpleNamespace, tmp_path: Path, row: Row) -> None:
    assert hang(board, row, tmp_path) == ("unreachable", 3)
    assert there(board) == ("" if row.step == "look" else "1\n")
    assert again(board, row.command) == row.again_hang
    assert there(board) == "1\n2\n3\n"


@each_row
def test_killed_in_a_step(board: SimpleNamespace, row: Row) -> None:
    kill(board, row)
    assert there(board) == ("" if row.step == "look" else "1\n")
    assert again(board, row.command) == row.again_killed
    assert there(board) == "1\n2\n3\n"
