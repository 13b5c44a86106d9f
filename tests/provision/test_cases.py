"""Facts and wishes in, actions out: one JSON file a case (case.py says how to read one)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .case import CASES, run, said

FILES = sorted(CASES.glob("*/*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_case(path: Path, tmp_path: Path) -> None:
    case = json.loads(path.read_text("utf-8"))
    assert said(run(case, tmp_path)) == case["expect"], case["about"]


def test_there_are_many_and_every_topic_is_there() -> None:
    assert len(FILES) >= 150
    assert {path.parent.name for path in FILES} >= {
        *("fastrpc", "rights", "rules", "packages", "repositories", "debs", "mixed"),
        *("groups", "files", "loader", "units", "libraries", "reboot"),
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_action_has_a_way_back_or_a_reason(path: Path) -> None:
    for action in json.loads(path.read_text("utf-8"))["expect"]["actions"]:
        assert action.get("undo") or action.get("no undo"), action["does"]
        assert action["root"] or "runs" not in action


@pytest.mark.parametrize(("enabled", "verb"), [("static", "start"), ("disabled", "enable --now")])
def test_the_cure_of_an_inactive_daemon_does_not_enable_a_static_unit(
    enabled: str, verb: str, tmp_path: Path
) -> None:
    case = json.loads((CASES / "units" / "daemon-inactive.json").read_text("utf-8"))
    case["state"] = {"units": {"cdsprpcd.service": ["loaded", "inactive", enabled]}}
    (finding,) = run(case, tmp_path).findings
    assert finding.cure.startswith(f"sudo systemctl {verb} cdsprpcd.service")
