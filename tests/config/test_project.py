from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from fleet.config import nearest, project
from fleet.config.schema import schema
from fleet.model.errors import InputError


def written(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fleet.yaml").write_text(text)
    return folder / "fleet.yaml"


def test_the_nearest_one_upwards_is_found(tmp_path: Path) -> None:
    outer, inner = written(tmp_path, "parallel: 2"), written(tmp_path / "a", "parallel: 3")
    (tmp_path / "a/b/c").mkdir(parents=True)
    assert nearest.find(tmp_path / "a/b/c") == inner
    assert nearest.find(tmp_path) == outer
    assert nearest.find(Path("/proc")) is None


def test_one_that_somebody_else_may_have_planted_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer, planted = written(tmp_path, "parallel: 2"), written(tmp_path / "tmp", "parallel: 3")
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    monkeypatch.setattr(nearest, "_owner", lambda path: 54321 if path == planted else 12345)
    assert nearest.find(planted.parent) == planted
    planted.parent.chmod(0o1777)
    assert nearest.find(planted.parent) == outer


def test_paths_start_from_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "a", "inventory: inv/x.yaml\nruns: ../runs\nrepeats: 7\n")
    found = project.load(path)
    assert found.inventory == tmp_path / "a/inv/x.yaml"
    assert found.runs.resolve() == tmp_path / "runs"
    assert (found.playbook, found.repeats, found.parallel) == (None, 7, None)


def test_each_project_has_runs_of_its_own(tmp_path: Path) -> None:
    paths = [written(tmp_path / name / "same", "parallel: 2\n") for name in "ab"]
    assert len({project.load(path).runs for path in paths}) == 2


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("inventori: x", "1:1", "unknown key 'inventori'"),
        ("playbook: x\ninventory: 3", "2:12", "'inventory' must be text"),
        ("parallel: 0", "1:11", "'parallel' must be at least 1, not 0"),
        ("repeats: many", "1:10", "'repeats' must be a whole number"),
        ("executor: localhost", "1:11", "not a valid executor"),
        ("", "", "the file is empty"),
    ],
)
def test_what_is_wrong_has_a_place(tmp_path: Path, text: str, place: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        project.load(written(tmp_path, text))
    assert place in str(caught.value)
    assert caught.value.hint


def test_the_schema_knows_the_same_keys() -> None:
    body = schema("project")
    Draft202012Validator.check_schema(body)
    assert body["properties"].keys() == project.KEYS.keys()
    validator = Draft202012Validator(body)
    assert validator.is_valid({"inventory": "a.yaml", "parallel": 4, "executor": "dask://h:1"})
    assert not validator.is_valid({"parallel": 0})
    assert not validator.is_valid({"other": 1})
