"""Facts and wishes in, actions out: one JSON file a case (case.py says how to read one)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.ops.system.packaging import packagings

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


@pytest.mark.parametrize(
    ("packaging", "version", "since"),
    [
        ("debian", "1.0.8-1", "1.0.8-1"),
        ("debian", "1.0.9-1", "1.0.8-1"),
        ("debian", "1.0.7-2~bpo13+1", "1.0.7-2"),
        ("debian", "1.0.7-1", "1.0.6-1"),
        ("debian", "1.0.2-2", "1.0.0-1"),
        ("debian", None, "1.0.8-1"),
        ("ubuntu-ppa", "1.0.2-0ubuntu1", "1.0.0-8"),
        ("ubuntu-ppa", "0.9", "1.0.0-4"),
        ("radxa", "99:1.0.7-3", "1.0.7-1"),
        ("upstream", "1.0.4", "1.0.4"),
        ("qualcomm-linux", "1.0.6-1qli1~bpo13+2", "1.0.6-1"),
        ("qualcomm-linux", "1.0.2-2qli1", "1.0.0-1"),
    ],
)
def test_the_facts_of_a_version(packaging: str, version: str | None, since: str) -> None:
    assert packagings()[packaging].at(version).since == since


def test_versions_are_newest_first_and_of_a_day() -> None:
    for row in packagings().values():
        days = [version.date for version in row.versions]
        assert days == sorted(days, reverse=True), row.id
        assert [row.at(version.since) for version in row.versions] == [*row.versions]


@pytest.mark.parametrize(
    ("version", "writes"), [("1.0.8-1", False), ("1.0.6-1", False), ("1.0.2-2", True)]
)
def test_what_a_version_brings_decides_on_a_rule_of_our_own(
    version: str, writes: bool, tmp_path: Path
) -> None:
    case = json.loads((CASES / "fastrpc" / "board-debian.json").read_text("utf-8"))
    names = ("libfastrpc1", "fastrpc-support")
    case["state"] = {"packages": {name: [None, version] for name in names}}
    steps = [step.describe() for step in run(case, tmp_path).steps]
    assert any("99-fleet-fastrpc.rules" in step for step in steps) == writes
