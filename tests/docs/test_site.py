"""`make docs`: every link leads somewhere, a page for each cause, nothing loaded from elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from fleet.triage.knowledge import knowledge

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LOADS = re.compile(
    r"""<(?:script|img|iframe|source)[^>]* src="?(?:https?:)?//"""
    r"""|<link[^>]* rel="?stylesheet[^>]* href="?(?:https?:)?//|@import|url\("?https?://"""
)


def built(config: Path, target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-f", config, "-d", target], cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


AREAS = ("Start", "Tutorial", "How-to guides", "Reference", "Explanation", "Evidence")


class Settings(yaml.SafeLoader):
    """mkdocs.yml without its Python objects."""


Settings.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def pages(nav: object) -> list[str]:
    """Return the files that a part of the navigation names."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    assert isinstance(parts, Iterable)
    return [page for part in parts for page in pages(part)]


def test_each_page_has_its_place_in_the_navigation() -> None:
    nav = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), Settings)["nav"]
    assert tuple(area for part in nav for area in part) == AREAS
    there = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    assert sorted(pages(nav)) == there, "each page of docs/ stands once below `nav:` of mkdocs.yml"


def test_each_page_is_in_the_index() -> None:
    """The pages of docs/sources and docs/decisions have an index of their own."""
    index = DOCS / "README.md"
    linked = set(re.findall(r"\]\(([^)#]+)", index.read_text("utf-8")))
    there = [path.relative_to(DOCS) for path in DOCS.rglob("*.md") if path != index]
    own = {"sources", "decisions"}  # tests/docs/test_sources.py, docs/design.md
    wanted = {path.as_posix() for path in there if path.parent.name not in own}
    assert sorted(wanted - linked) == []
    design = (DOCS / "design.md").read_text("utf-8")
    assert [path.name for path in there if path.parent.name == "decisions"]
    for path in there:
        assert path.parent.name != "decisions" or f"({path.as_posix()})" in design, path
    assert "sources/README.md" in linked


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[there](#first)", ""),
        ("[nowhere](nowhere.md)", "nowhere.md"),
        ("[nowhere](#second)", "#second"),
    ],
)
def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path, text: str, problem: str) -> None:
    """With `-q` mkdocs counts no warnings, and `strict` finds nothing."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install '.[docs]'")
    config = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[0]
    config = re.sub(r"(?m)^(hooks|  font|  features):.*\n", "", config)
    (tmp_path / "mkdocs.yml").write_text(config.replace("name: material", "name: mkdocs"))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# First\n\n{text}\n")
    done = built(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert bool(done.returncode) == bool(problem), done.stderr
    assert problem in done.stderr


def test_make_builds_the_pages_as_these_tests_do() -> None:
    (line,) = re.findall(r".*mkdocs build.*", (ROOT / "Makefile").read_text("utf-8"))
    assert " -q" not in line


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
