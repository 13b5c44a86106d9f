"""docs/preflight.md and README.md name the rules that there are, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from fleet.bundles.preflight import RULES

DOCS = Path(__file__).parents[2] / "docs"
_ROW = re.compile(r"^\| `([a-z0-9-]+)` \| (refuse|warn) \| (.+?) \|", re.MULTILINE)


def test_every_rule_is_documented_as_it_is() -> None:
    rows = _ROW.findall((DOCS / "preflight.md").read_text("utf-8"))
    assert rows == [(rule.id, rule.severity, rule.text) for rule in RULES]


def test_the_readme_counts_them() -> None:
    readme = (DOCS.parent / "README.md").read_text("utf-8")
    assert re.findall(r"(\d+) rules", readme) == [str(len(RULES))]


def test_the_commands_of_the_docs_exist() -> None:
    text = (DOCS / "bundles.md").read_text("utf-8")
    assert "fleet bundle inspect" in text
    for name in ("tool-versions.yaml", "SHA256SUMS", "genie_config.json", "ctx-bins", "30010"):
        assert name in text
