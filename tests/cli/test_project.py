"""A project: what fleet.yaml supplies, in which order, and hints that still can be pasted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from fleet.cli import doctor_devices, project
from fleet.cli.hints import completed
from fleet.cli.main import build
from fleet.model import home
from fleet.model.errors import InputError
from fleet.profiles.runs import RunStore
from fleet.profiles.store.store import ProfileStore
from tests.docs.tree import commands

LEAVES = dict(commands())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, below a project."""
    (tmp_path / "fleet.yaml").write_text("inventory: of.yaml\nplaybook: p/of.yaml\nparallel: 3\n")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    monkeypatch.setattr(sys, "argv", ["fleet"])
    for name in project.VARIABLES.values():
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def given(*words: str) -> dict[str, Any]:
    context = LEAVES[words[0]].make_context(words[0], list(words[1:]))
    return dict(context.params)


def test_an_option_wins_over_the_environment_and_that_over_the_project(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = given("deploy")
    assert [str(found[name]) for name in project.VARIABLES] == ["../of.yaml", "../p/of.yaml"]
    monkeypatch.setenv("FLEET_INVENTORY", "env.yaml")
    monkeypatch.setenv("FLEET_PLAYBOOK", "play.yaml")
    found = given("deploy")
    assert [str(found[name]) for name in project.VARIABLES] == ["env.yaml", "play.yaml"]
    found = given("deploy", "-i", "i.yaml", "p.yaml")
    assert [str(found[name]) for name in project.VARIABLES] == ["i.yaml", "p.yaml"]


@pytest.mark.parametrize("command", [("doctor",), ("ab", "A", "B"), ("config", "list")])
def test_commands_that_may_do_without_an_inventory_take_it_too(
    folder: Path, command: tuple[str, ...]
) -> None:
    done = CliRunner().invoke(build(), list(command))
    assert isinstance(done.exception, InputError)
    assert "the file ../of.yaml does not exist" in str(done.exception)


def test_a_pasted_log_needs_no_board_of_the_project(folder: Path) -> None:
    done = CliRunner().invoke(build(), ["doctor", "--log", "-"], input="no such words\n")
    assert done.exit_code == 5


def test_hints_leave_out_what_the_project_supplies(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completed("fleet plan") == "fleet plan"
    assert completed("fleet doctor -i INVENTORY") == "fleet doctor"
    monkeypatch.setattr(sys, "argv", ["fleet", "plan", "p.yaml", "-i", "i.yaml"])
    assert completed("fleet deploy") == "fleet deploy p.yaml -i i.yaml"
    monkeypatch.setattr(sys, "argv", ["fleet", "plan"])
    monkeypatch.setenv("FLEET_INVENTORY", "e.yaml")
    assert completed("fleet plan") == "fleet plan -i e.yaml"
    monkeypatch.delenv("FLEET_INVENTORY")
    (folder / "fleet.yaml").write_text("nonsense: 1")
    assert completed("fleet plan") == "fleet plan PLAYBOOK -i INVENTORY"


def test_the_doctor_names_the_playbook_of_the_project(folder: Path) -> None:
    assert doctor_devices._playbook(Path("../of.yaml")) == Path("../p/of.yaml")


def test_without_a_project_the_error_names_what_makes_one(folder: Path) -> None:
    (folder / "fleet.yaml").write_text("parallel: 2\n")
    with pytest.raises(InputError, match=r"and .*fleet\.yaml names none") as caught:
        given("status")
    assert caught.value.hint == "add `inventory: FILE` to it; or give one: -i FILE"
    (folder / "fleet.yaml").unlink()
    for words, missing in ((["status"], "inventory"), (["plan", "-i", "x.yaml"], "playbook")):
        with pytest.raises(InputError, match=f"no {missing} is given") as caught:
            given(*words)
        assert caught.value.hint.startswith("fleet init (")


def test_house_defaults_give_way_to_options(folder: Path) -> None:
    (folder / "fleet.yaml").write_text("repeats: 7\nexecutor: dask://a:1\nparallel: 3\n")
    files = ("-i", "i.yaml", "p.yaml")
    found = given("run", *files)
    assert [found[name] for name in ("repeats", "executor", "parallel")] == [7, "dask://a:1", 3]
    found = given("run", *files, "--repeats", "2", "--executor", "dask://b:2", "-p", "1")
    assert [found[name] for name in ("repeats", "executor", "parallel")] == [2, "dask://b:2", 1]


def test_records_and_last_are_those_of_the_project(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "_projects", [project.runs])
    monkeypatch.setenv("FLEET_HOME", str(folder / "home"))
    assert RunStore().root.parents[1] == folder / "home/projects"
    (folder / "fleet.yaml").write_text("runs: kept\n")
    assert RunStore().root == folder / "kept"
    with ProfileStore() as store:
        assert (store.path, store.runs) == (folder / "kept/profiles.db", folder / "kept")
    (folder / "fleet.yaml").unlink()
    assert RunStore().root == folder / "home/runs"
    with ProfileStore() as store:
        assert (store.path, store.runs) == (folder / "home/profiles.db", folder / "home/runs")


def test_what_init_writes_is_a_project_whose_schemas_resolve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(build(), ["init", "mine", "evk-01"]).exit_code == 0
    for name in ("fleet.yaml", "inventories/boards.yaml", "playbooks/boards.yaml"):
        path = tmp_path / "mine" / name
        first = path.read_text().splitlines()[0]
        named = path.parent / first.removeprefix("# yaml-language-server: $schema=")
        text = yaml.safe_load(path.read_text())
        Draft202012Validator(json.loads(named.read_text())).validate(text)
    monkeypatch.chdir(tmp_path / "mine")
    assert "evk-01" in CliRunner().invoke(build(), ["config", "list"]).stdout
    assert "NAME-YOUR-BUNDLE" in str(CliRunner().invoke(build(), ["plan"]).exception)
