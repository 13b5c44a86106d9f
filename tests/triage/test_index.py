"""The index of the causes: what is read instead of 75 YAML files, while it is of them."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

from fleet.config.cause_file import load_causes
from fleet.triage.knowledge import knowledge
from fleet.triage.knowledge import read as read_index
from fleet.triage.matcher import Matcher, literals

from .measuring import cases

DATA = Path(str(files("fleet"))) / "data"


def test_the_index_is_of_the_files() -> None:
    from fleet.triage.knowledge import _paths, _tables

    assert read_index([*_paths(None), *_tables()]), "run: python -m fleet.triage.knowledge"
    fresh = {cause.id: cause for cause in load_causes(sorted((DATA / "causes").glob("*.yaml")))}
    assert knowledge().causes == fresh


def test_the_index_of_other_files_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text("id: one\n", "utf-8")
    assert read_index([path]) is None


def test_literals_are_in_every_line_that_matches() -> None:
    assert literals("ab(cde|fgh)i?jkl") == [["ab"], ["cde", "fgh"], ["jkl"]]
    assert literals(r"\bfoo\b.{0,30}barbar") == [["barbar"], ["foo"]]
    assert literals("(abc)?x") == []
    assert literals(r"(?=ahead)") == []


def test_narrowing_loses_no_match() -> None:
    """Every pattern at once over each line, against those that the words of the log allow."""
    known = knowledge()
    whole = Matcher(known.matcher.patterns, words=[[] for _ in known.matcher.patterns])
    for name in ("unseen2.jsonl", "unseen3.jsonl"):
        for row in cases(name):
            narrowed = known.matcher.over(row["log"])
            every = whole.over(row["log"])
            for line in row["log"].splitlines():
                assert sorted(narrowed.match(line)) == sorted(every.match(line)), line


def test_a_known_log_needs_no_yaml_and_no_pydantic() -> None:
    code = (
        "import sys\n"
        "from fleet.cli.main import build\n"
        "build('doctor')\n"
        "from fleet.triage.triage import triage\n"
        "assert triage('Failed to create device: 14001').causes\n"
        "print(sorted({'yaml', 'pydantic', 'tarfile', 'rich.progress'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
