"""Workflows and their companions. None can run here: their parts are compared with the tree."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.tiers import gate

ROOT = Path(__file__).parents[1]
PATHS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
WORKFLOWS: dict[str, dict[Any, Any]] = {
    path.stem: yaml.safe_load(path.read_text("utf-8")) for path in PATHS
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PINNED = re.compile(r"[\w-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, workflow in WORKFLOWS.items():
        for job, body in workflow["jobs"].items():
            yield f"{name}: {job}", body


def scripts() -> Iterator[tuple[str, str]]:
    """Yield (workflow, job and step; shell) of each step that is a command."""
    for name, body in jobs():
        for step in body["steps"]:
            if "run" in step:
                yield f"{name}: {step['name']}", step["run"]


SCRIPTS = dict(scripts())


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_each_action_is_pinned_by_its_commit(path: Path) -> None:
    used = re.findall(r"uses: (.*)", path.read_text("utf-8"))
    assert used
    assert [one for one in used if not PINNED.fullmatch(one)] == []


def test_each_workflow_may_only_read_unless_a_job_says_more() -> None:
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {"contents": "read"}, name


def test_each_job_ends() -> None:
    assert [name for name, body in jobs() if not 0 < body.get("timeout-minutes", 0) <= 60] == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_step_is_plain_shell(name: str) -> None:
    """An expression in a script would be code of whoever names a branch; `env:` carries values."""
    text = SCRIPTS[name]
    assert "${{" not in text
    done = subprocess.run(
        [Path(sys.executable).with_name("shellcheck"), "-s", "bash", "-"],
        input=text, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_what_the_steps_name_is_there() -> None:
    text = "\n".join(SCRIPTS.values())
    targets = set(re.findall(r"^make ([\w-]+)", text, re.MULTILINE))
    assert targets == {"test", "test-gate"}
    phony = re.search(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert phony
    assert targets <= set(phony[1].split())
    files = set(re.findall(r"(?<!/)\.ci/[\w./-]+", text))
    assert files
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_the_tests_run_with_each_python_that_the_package_names() -> None:
    rows = WORKFLOWS["test"]["jobs"]["test"]["strategy"]["matrix"]["include"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert [row["python"] for row in rows] == named
    allowed = SpecifierSet(PROJECT["requires-python"])
    assert [allowed.contains(version) for version in (*named, "3.10")] == [True] * len(named) + [
        False
    ]
    images = {row["image"] for row in rows}
    assert images >= {"debian:12", "debian:13", "ubuntu:24.04"}
    wheel = WORKFLOWS["test"]["jobs"]["wheel"]["strategy"]["matrix"]
    assert wheel["python"] == [named[0], named[-1]]
    assert {name.partition("-")[0] for name in wheel["system"]} >= {"macos", "windows"}


def test_the_gate_is_divided_without_a_rest() -> None:
    rows = WORKFLOWS["test"]["jobs"]["gate"]["strategy"]["matrix"]["include"]
    parts = [part for row in rows for part in row["folders"].split()]
    assert [part for part in parts if not (ROOT / part).exists()] == []
    for path in [*ROOT.glob("tests/*/test_*.py"), *(ROOT / name.split("::")[0] for name in gate())]:
        file = path.relative_to(ROOT).as_posix()
        inside = [part for part in parts if file == part or file.startswith(f"{part}/")]
        assert len(inside) == 1, f"{file}: add its folder to one row of `gate` in test.yml"


def test_only_a_pinned_tool_makes_a_release() -> None:
    release = [text for name, text in SCRIPTS.items() if name.startswith(("release", "locks"))]
    installs = [line for text in release for line in text.splitlines() if "pip install" in line]
    assert len(installs) >= 3
    assert [one for one in installs if not re.search("--require-hashes|--no-deps", one)] == []
    tools = (ROOT / ".ci" / "requirements" / "tools.in").read_text("utf-8")
    pins = (ROOT / ".ci" / "requirements" / "tools.txt").read_text("utf-8")
    wanted = re.findall(r"^([\w-]+)>=", tools, re.MULTILINE)
    assert wanted
    for name in wanted:
        assert re.search(
            rf"^{canonicalize_name(name)}==\S+ \\\n +--hash=sha256:", pins, re.MULTILINE
        )


def test_a_release_is_attested_and_needs_no_stored_secret() -> None:
    jobs_of = WORKFLOWS["release"]["jobs"]
    used = {
        step["uses"].partition("@")[0]: step.get("with", {})
        for step in jobs_of["build"]["steps"] + jobs_of["publish"]["steps"]
        if "uses" in step
    }
    assert used["actions/attest"]["sbom-path"] == "out/sbom.cdx.json"
    assert used["pypa/gh-action-pypi-publish"] == {"attestations": True}
    assert jobs_of["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")


def test_what_a_release_asks_of_its_wheel_can_be_asked() -> None:
    """The same line of Python, of the installation that runs these tests."""
    (line,) = re.findall(r"bin/python -c '([^']+)'", "\n".join(SCRIPTS.values()))
    assert "PARTS" in line
    subprocess.run([sys.executable, "-c", line], check=True, timeout=60)


def test_the_container_for_development_is_set_up_by_a_script_that_is_here() -> None:
    settings = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text("utf-8"))
    script = settings["postCreateCommand"].removeprefix("sh ")
    assert "tests/setup.sh" in (ROOT / script).read_text("utf-8")


def test_commits_that_blame_passes_over_are_written_in_full() -> None:
    lines = (ROOT / ".git-blame-ignore-revs").read_text("utf-8").splitlines()
    commits = [line for line in lines if line and not line.startswith("#")]
    assert commits
    assert [one for one in commits if not re.fullmatch(r"[0-9a-f]{40}", one)] == []
