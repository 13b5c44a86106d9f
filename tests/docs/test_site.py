"""`make docs`: every link leads somewhere, a page for each cause, nothing loaded from elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.triage.knowledge import knowledge

ROOT = Path(__file__).parents[2]
LOADS = re.compile(
    r"""<(?:script|img|iframe|source)[^>]* src="?(?:https?:)?//"""
    r"""|<link[^>]* rel="?stylesheet[^>]* href="?(?:https?:)?//|@import|url\("?https?://"""
)


def built(config: Path, target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-q", "-f", config, "-d", target], cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def test_the_site_is_whole(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install '.[docs]'")
    done = built(ROOT / "mkdocs.yml", tmp_path)
    assert done.returncode == 0, done.stderr
    for cause in knowledge().causes:
        assert (tmp_path / "causes" / f"{cause}.html").is_file()
    for page in tmp_path.rglob("*.html"):
        found = LOADS.search(page.read_text("utf-8"))
        assert not found, f"{page.name}: {found and found[0]}"
    index = json.loads((tmp_path / "search" / "search_index.json").read_text("utf-8"))
    assert any("14001" in entry["text"] for entry in index["docs"])
