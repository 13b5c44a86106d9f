"""A source that fleet cites is a page that is here, or an original that can be opened."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "sources"
CITED = re.compile(r"docs/sources/([\w-]+)\.md((?:,? (?:and )?\d+)*)")
CLOSED = re.compile(
    r"(?<!sources/)\b(?:deployment|failures|walkthroughs)\.md|qairt_experiments|file-index"
    r"|public file id"
)


def texts() -> dict[Path, str]:
    found = [path for path in (ROOT / "fleet").rglob("*") if path.suffix in {".py", ".yaml", ".sh"}]
    return {path: path.read_text("utf-8") for path in found}


def test_each_section_that_is_cited_is_there() -> None:
    missing, seen = [], 0
    for path, text in texts().items():
        for page, numbers in CITED.findall(text):
            there = (PAGES / f"{page}.md").read_text("utf-8")
            for number in re.findall(r"\d+", numbers):
                seen += 1
                if f"\n## {number} " not in there and f"| {number} |" not in there:
                    missing.append(f"{path.relative_to(ROOT)}: {page}.md {number}")
    assert missing == []
    assert seen > 60


def test_no_source_is_a_paper_that_is_not_here() -> None:
    assert [str(path) for path, text in texts().items() if CLOSED.search(text)] == []


def test_each_page_is_in_the_list() -> None:
    listed = (PAGES / "README.md").read_text("utf-8")
    assert [path.name for path in PAGES.glob("*.md") if f"({path.name})" not in listed] == [
        "README.md"
    ]
