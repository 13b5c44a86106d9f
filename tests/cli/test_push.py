"""`fleet push`: what is wrong about the command is said before a board hears of it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fleet.cli.main import build
from fleet.model.errors import InputError, UnreachableError
from tests import warm


@pytest.fixture
def board() -> Iterator[socket.socket]:
    """What answers at the address of the board, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


@pytest.fixture
def inventory(board: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("x")
    Path("empty").mkdir()
    hosts = {"evk": {"host": "127.0.0.1", "port": board.getsockname()[1], "connect_timeout": 0.5}}
    path = tmp_path / "lab.yaml"
    path.write_text(json.dumps({"all": {"hosts": hosts}}), "utf-8")
    return path


def push(inventory: Path, *words: str) -> Result:
    return CliRunner().invoke(build("push"), ["push", "-i", str(inventory), *words])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "nowhere does not exist"),
        (["file", "--tune", "quick"], "no setting 'quick'"),
        (["file", "--tune", "carrier=pigeon"], "'pigeon' is not a known value"),
        (["file", "--name", "a/b"], "'a/b' is not a valid release name"),
        (["empty"], "contains no file to send"),
        (["file", "--limit", "other"], "other"),
    ],
)
def test_a_wrong_command_connects_to_no_board(
    words: list[str], said: str, board: socket.socket, inventory: Path
) -> None:
    done = push(inventory, *words)
    assert isinstance(done.exception, InputError), done
    assert said in str(done.exception)
    with pytest.raises(BlockingIOError):
        board.accept()


def test_a_right_one_does(board: socket.socket, inventory: Path) -> None:
    done = push(inventory, "file")
    assert done.exit_code == UnreachableError("").exit_code, done
    board.accept()[0].close()


def test_status_names_who_pushed_and_who_rolled_back(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    inventory = tmp_path / "i.yaml"
    inventory.write_text(
        f"all:\n  hosts:\n    evk-1: {{transport: local, base_dir: '{tmp_path}/base'}}\n"
    )

    def fleet(owner: str, *words: str) -> str:
        env = {**os.environ, "FLEET_HOME": str(tmp_path / "home"), "FLEET_OWNER": owner}
        env |= {"FLEET_LEASE_DIR": str(tmp_path)}
        done = warm.fleet(words[0], "-i", inventory, *words[1:], cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def by() -> str | None:
        (device,) = json.loads(fleet("ann@desk", "status", "--json"))
        (release,) = device["deployed"]
        name: str | None = release["by"]
        return name

    for text in ("first", "second"):
        (tmp_path / "files" / "note").write_text(text)
        fleet("ann@desk", "push", "files", "--name", "app")
    assert by() == "ann@desk"
    fleet("bob@desk", "rollback", "app")
    assert by() == "bob@desk"
    notes = tmp_path / "home" / "switches.jsonl"
    kept = [line for line in notes.read_text().splitlines() if "bob@desk" not in line]
    notes.write_text("\n".join(kept) + "\n{cut")
    assert by() is None, "a switch that is not known here may be newer than those that are"
