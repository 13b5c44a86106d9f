"""`fleet lab` as it is typed: what it says of faults, and of labs that run elsewhere."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from fleet.cli import lab as cli
from fleet.cli.main import main
from fleet.lab import Lab
from fleet.lab.folder import Board, start_ticks


def fleet(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["fleet", "lab", *words])
    try:
        main()
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def running(folder: Path) -> Path:
    """A lab without boards whose process is this one."""
    lab = cli._lab(folder)
    folder.mkdir(parents=True)
    state = {"pid": os.getpid(), "started": start_ticks(os.getpid()), "boards": [], "phones": []}
    lab.folder.state_file.write_text(json.dumps(state))
    assert lab.alive()
    return folder


def test_the_lab_of_the_project_is_named_where_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = running(tmp_path / "elsewhere" / "boards") / "id_ed25519"
    key.write_text("")
    project = tmp_path / "project"
    project.mkdir()
    hosts = {"lab001": {"host": "127.0.0.1", "identity_file": str(key)}}
    (project / "i.yaml").write_text(json.dumps({"all": {"hosts": hosts}}))
    (project / "fleet.yaml").write_text("inventory: i.yaml\n")
    monkeypatch.chdir(project)
    for words in (
        ["list"],
        ["inject", "no-node", "-l", "lab001"],
        ["exec", "-l", "lab001", "--", "id"],
    ):
        assert fleet(monkeypatch, *words) != 0
        said = capsys.readouterr().err
        assert "but one is running in ../elsewhere/boards" in said
        assert "--dir ../elsewhere/boards" in said.partition("try:")[2]


@pytest.mark.parametrize(
    ("fault", "hint"),
    [("node-root-onyl", "did you mean 'node-root-only'?"), ("xyz", "fleet lab inject -h (lists")],
)
def test_a_misspelt_fault_names_the_one_that_was_meant(
    fault: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    lab = cli._lab(running(tmp_path / "lab"))
    state = json.loads(lab.folder.state_file.read_text())
    board = Board("lab001", "namespace", "iq9075", 1, "ubuntu", "/home/ubuntu", "")
    lab.folder.state_file.write_text(json.dumps(state | {"boards": [asdict(board)]}))
    assert fleet(monkeypatch, "inject", fault, "-l", "lab001", "--dir", str(lab.folder.root)) == 2
    said = capsys.readouterr().err
    assert f"'{fault}' is not a fault of lab001" in said
    assert hint in said
    assert "broken-dpkg" not in said, "45 names tell nothing"
    assert fleet(monkeypatch, "inject", "-l", "lab001", "--dir", str(lab.folder.root)) == 2
    said = capsys.readouterr().err
    assert "no fault is given for lab001" in said
    assert "fleet lab inject -h (lists" in said


def test_what_is_on_is_said_and_how_to_take_it_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(running(tmp_path / "lab"))
    monkeypatch.setattr(Lab, "_change", lambda *_, **__: None)
    assert fleet(monkeypatch, "inject", "no-node", "-l", "lab002", "--dir", folder) == 0
    said = capsys.readouterr()
    assert "lab002 has the fault no-node now" in said.err
    assert f"fleet lab heal no-node -l lab002 --dir {folder}" in said.err
    assert not said.out
    assert fleet(monkeypatch, "heal", "no-node", "-l", "lab002", "--dir", folder) == 0
    assert "lab002 no longer has the fault no-node" in capsys.readouterr().err
    assert fleet(monkeypatch, "inject", "new-host-key", "-l", "lab002", "--dir", folder) == 0
    assert f"fleet lab heal new-host-key -l lab002 --dir {folder}" in capsys.readouterr().err


def test_a_board_that_is_off_is_listed_as_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = running(tmp_path / "lab")
    rows = [
        Board(name, "namespace", "iq9075", 24001, "ubuntu", "/home/ubuntu", "", pid)
        for name, pid in (("lab001", os.getpid()), ("lab002", 0))
    ]
    monkeypatch.setattr(Lab, "boards", rows)
    monkeypatch.setattr(Lab, "phones", [])
    assert fleet(monkeypatch, "list", "--dir", str(folder)) == 0
    found = [line.split(" | ")[:2] for line in capsys.readouterr().out.splitlines()]
    states = {row[0].strip(): row[1].strip() for row in found if row[0].startswith("lab0")}
    assert states == {"lab001": "up", "lab002": "down"}


def test_names_of_elsewhere_lead_to_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fleet(monkeypatch, "status") == 2
    assert "fleet lab list" in capsys.readouterr().err.partition("try:")[2]
