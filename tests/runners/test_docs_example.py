"""The runner of docs/runners.md, exactly as it stands there: installed, found, run on a board."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.lab import Lab

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "runners.md").read_text("utf-8")
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[-1]
POINT = re.search(r'words = "(\S+)"', PAGE)
PLAYBOOK = """
name: words
bundle: {path: bundle, kind: files}
runtime: "2.51.0"
run:
  runner: words
  program: wordcount
  options: {text: words.txt}
  repeats: 2
"""
PROGRAM = """#!/bin/sh
[ "$1" = --help ] && exit 0
wc -w < "$1" | tr -d ' ' > "$2"
"""


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Lab]:
    with Lab.up(tmp_path / "lab", count=1, kind="user", base_port=0) as lab:
        yield lab


def fleet(folder: Path, site: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; sys.path[:0] = [sys.argv.pop(1), sys.argv.pop(1)]; "
    code += "from fleet.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, str(site), str(ROOT), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "FLEET_HOME": str(home)},
    )


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The module, and the metadata that an installed package has."""
    assert POINT is not None
    folder = tmp_path / "site"
    info = folder / "fleet_words-1.0.dist-info"
    info.mkdir(parents=True)
    module, _, _ = POINT[1].partition(":")
    (folder / f"{module}.py").write_text(CODE, "utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fleet-words\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[fleet.runners]\nwords = {POINT[1]}\n")
    return folder


def test_the_example_has_at_most_forty_lines() -> None:
    assert len(CODE.strip().splitlines()) <= 40


@pytest.mark.qairt
def test_the_example_runs(board: Lab, site: Path, tmp_path: Path, qairt_store: object) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "words.txt").write_text("five words stand right here\n")
    (tmp_path / "wordcount").write_text(PROGRAM)
    (tmp_path / "words.yaml").write_text(PLAYBOOK)
    home = tmp_path / "home"
    home.mkdir()
    (home / "runtimes").symlink_to(qairt_store.root)  # type: ignore[attr-defined]
    done = fleet(tmp_path, site, home, "deploy", "-i", str(board.inventory), "words.yaml", "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    records = [json.loads(path.read_text()) for path in home.rglob("record.json")]
    assert [one["metrics"]["others"] for one in records] == [
        {"words": {"value": 5.0, "unit": ""}}
    ] * 2
    assert {one["runner"] for one in records} == {"words"}


def test_a_broken_one_is_named_and_hinders_nobody(site: Path, tmp_path: Path) -> None:
    (site / "fleet_words.py").write_text("raise RuntimeError('no such luck')\n")
    listed = fleet(tmp_path, site, tmp_path, "config", "runners", "--json")
    assert listed.returncode == 0, listed.stderr
    rows = {one["name"]: one for one in json.loads(listed.stdout)}
    assert "no such luck" in rows["words"]["error"]
    assert rows["words"]["origin"] == "fleet-words 1.0"
    assert rows["genie"]["error"] == ""
    assert rows["mllm"]["options"]["ar_len"] == 128
