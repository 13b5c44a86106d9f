"""Fragments in changelog.d/ that towncrier assembles, and the sections of CHANGELOG.md."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from datetime import date
from pathlib import Path

import pytest

from fleet.model.version import VERSION

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "changelog.d"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["towncrier"]
TYPES = [kind["directory"] for kind in SETTINGS["type"]]
FRAGMENTS = sorted(path for path in FOLDER.iterdir() if path.name not in SETTINGS["ignore"])
NAME = re.compile(rf"\+[a-z0-9][a-z0-9-]*\.(?:{'|'.join(TYPES)})\.md")
SECTION = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})$", re.MULTILINE)
LINES = 40  # of a section: what a user reads
LONGEST = 600  # characters: three sentences for a user


def problems(name: str, text: str) -> list[str]:
    """Return what is wrong with a fragment of that name and text."""
    found = []
    if not NAME.fullmatch(name):
        found.append(f"the name is not +SLUG.TYPE.md with TYPE one of {', '.join(TYPES)}")
    if not text.strip():
        found.append("the file is empty")
    if re.match(r"\s*(?:[-*#]|\d+\.) ?", text):
        found.append("the text begins with a bullet or a heading; towncrier adds the bullet")
    if len(text) > LONGEST:
        found.append(f"the text has {len(text)} characters, more than {LONGEST}")
    return found


@pytest.mark.parametrize("path", FRAGMENTS, ids=lambda path: path.name)
def test_a_fragment_has_a_known_type_and_a_short_text(path: Path) -> None:
    assert problems(path.name, path.read_text("utf-8")) == [], "see changelog.d/README.md"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("+demo.feature.md", "A new option."),
        ("demo.added.md", "A new option."),
        ("+demo.added.txt", "A new option."),
        ("+Demo.added.md", "A new option."),
        ("+demo.added.md", "\n"),
        ("+demo.added.md", "- A new option."),
        ("+demo.added.md", "# A new option."),
        ("+demo.added.md", "A new option. " * 50),
    ],
)
def test_a_wrong_fragment_is_noticed(name: str, text: str) -> None:
    assert problems("+demo.added.md", "A new option.\n") == []
    assert len(problems(name, text)) == 1


def test_towncrier_puts_each_fragment_below_the_title_of_its_type() -> None:
    pytest.importorskip("towncrier", reason="towncrier is not installed: make check installs it")
    done = subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "99.0.0"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("## [99.0.0] - ")
    blocks = dict(block.partition("\n")[::2] for block in done.stdout.split("\n### ")[1:])
    titles = {kind["directory"]: kind["name"] for kind in SETTINGS["type"]}
    for path in FRAGMENTS:
        first = path.read_text("utf-8").strip().splitlines()[0]
        assert f"- {first}" in blocks[titles[path.name.split(".")[-2]]], path.name


def test_the_page_for_contributors_names_each_type() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE)
    assert rows == TYPES
    assert "changelog.d/README.md" in (ROOT / "CONTRIBUTING.md").read_text("utf-8")


def test_each_version_has_a_dated_section_that_can_be_read() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    head, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    assert head.endswith(SETTINGS["start_string"] + "\n")
    found = [match.groups() for section in sections if (match := SECTION.match(section))]
    assert len(found) == len(sections), "## [X.Y.Z] - YYYY-MM-DD"
    versions = [tuple(map(int, version.split("."))) for version, _ in found]
    assert versions == sorted(set(versions), reverse=True)
    days = [date.fromisoformat(day) for _, day in found]
    assert days == sorted(days, reverse=True)
    for section in sections:
        lines = section.strip().splitlines()
        assert len(lines) <= LINES, f"{lines[0]}: {len(lines)} lines, more than {LINES}"


def test_the_version_is_that_of_the_newest_section() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    newest = SECTION.search((ROOT / "CHANGELOG.md").read_text("utf-8"))
    assert newest
    assert newest[1] == VERSION == project["version"]
