"""A playbook can name every runner that there is: ours, those of other packages, those that our
own playbooks use and speak of. Real files, as a user writes them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.config.playbook import load_playbook
from fleet.config.runners import DEFAULT_RUNNERS
from fleet.engine.deploy.release_builder import runner_of
from fleet.model.bundle import KINDS
from fleet.model.errors import InputError, PlaybookError
from fleet.model.playbook import RunSpec
from fleet.runners import Defaults, registry
from fleet.runners.options import Options, OwnProgram, parsed
from fleet.runners.registry import OWN, names, options_of, runner

ROOT = Path(__file__).parents[2]
PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yaml"))
ADVERTISED = re.compile(r"`runner: ([a-z0-9._-]+)`")


def written(folder: Path, data: dict[str, Any]) -> Path:
    (folder / "bundle").mkdir(exist_ok=True)
    (folder / "program").write_text("#!/bin/sh\n")
    path = folder / "playbook.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


def naming(name: str, kind: str) -> dict[str, Any]:
    run: dict[str, Any] = {"runner": name, "prompt": "hello"}
    if name in OWN and isinstance(OWN[name], OwnProgram):
        run["program"] = "program"
    if name == "qnn-net-run":
        run["options"] = {"inputs": [["a.raw"]]}
    if name == "litert":
        run["options"] = {"accelerator": "cpu"}
    return {"name": "x", "bundle": {"path": "bundle", "kind": kind}, "run": run}


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in names() for kind in runner(name).kinds]
)
def test_each_runner_can_be_named_for_each_kind_of_its(
    tmp_path: Path, name: str, kind: str
) -> None:
    playbook = load_playbook(written(tmp_path, naming(name, kind)))
    assert runner_of(playbook).name == runner(name).name


@pytest.mark.parametrize("kind", KINDS)
def test_the_runner_of_a_kind_is_one_that_there_is(tmp_path: Path, kind: str) -> None:
    data = naming(DEFAULT_RUNNERS[kind], kind)
    del data["run"]["runner"]
    assert kind in runner_of(load_playbook(written(tmp_path, data))).kinds


def test_one_of_another_package_can_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    info = site / "fleet_words-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fleet-words\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fleet.runners]\nwords = fleet_words_of_a_test:Words\n")
    (site / "fleet_words_of_a_test.py").write_text(
        "from fleet.runners.exec import ExecRunner\n\n\nclass Words(ExecRunner):\n"
        '    name = "words"\n    kinds = ("files",)\n    needs_prompt = True\n'
        '    instead_of_prompt = ("text",)\n'
    )
    path = written(tmp_path, naming("words", "files"))
    with pytest.raises(PlaybookError, match="no runner is called 'words'"):
        load_playbook(path)
    monkeypatch.syspath_prepend(str(site))
    registry._others.cache_clear()
    try:
        data = naming("words", "files")
        data["run"]["program"] = "program"
        assert getattr(runner_of(load_playbook(written(tmp_path, data))), "name", "") == "words"
        del data["run"]["prompt"]
        with pytest.raises(PlaybookError, match="`run` has no prompt") as error:
            load_playbook(written(tmp_path, data))
        assert re.search(r"playbook.yaml:\d+:\d+", str(error.value))
        data["run"]["options"] = {"text": "stdout"}
        load_playbook(written(tmp_path, data))
    finally:
        monkeypatch.undo()
        registry._others.cache_clear()


def test_a_runner_of_the_form_before_0_3_lists_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    class WordOptions(Options, frozen=True):
        text: str = "words.txt"

    class Old(Defaults):
        name = "old"
        kinds = ("files",)

        def check(self, run: RunSpec) -> None:
            parsed(WordOptions, run.options, self.name)

    monkeypatch.setitem(globals(), "WordOptions", WordOptions)
    found: Any = Old()
    assert options_of(found) == {"text": "words.txt"}
    with pytest.raises(InputError, match="other"):
        found.check(RunSpec(options={"other": 1}))


def test_a_name_that_is_none_gets_all_of_them(tmp_path: Path) -> None:
    with pytest.raises(PlaybookError) as caught:
        load_playbook(written(tmp_path, naming("zzzz", "files")))
    assert [name for name in OWN if name not in caught.value.hint] == []


def at_home(folder: Path, source: Path) -> Path:
    """A playbook of ours beside the folders and files that its user has."""
    path = folder / "playbooks" / source.name
    path.parent.mkdir(exist_ok=True)
    path.write_text(source.read_text("utf-8"), "utf-8")
    data = yaml.safe_load(path.read_text("utf-8"))
    bundle, run = data["bundle"], data.get("run") or {}
    there = path.parent / (bundle if isinstance(bundle, str) else bundle["path"])
    there.mkdir(parents=True)
    packages = [row[key] for row in data.get("op_packages", ()) for key in ("cpu", "htp")]
    for name in (run.get("program"), run.get("prompt_file"), *run.get("libraries", ()), *packages):
        if name is not None:
            file = path.parent / name.replace("*", "x")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("hello")
    return path


@pytest.mark.parametrize("source", PLAYBOOKS, ids=lambda path: path.stem)
def test_our_own_playbooks_name_runners_that_there_are(tmp_path: Path, source: Path) -> None:
    playbook = load_playbook(at_home(tmp_path, source))
    if playbook.run is not None:
        assert runner_of(playbook) is runner(playbook.run.runner)


@pytest.mark.parametrize(
    ("source", "name"),
    [(path, name) for path in PLAYBOOKS for name in ADVERTISED.findall(path.read_text("utf-8"))],
    ids=lambda one: getattr(one, "stem", one),
)
def test_what_they_speak_of_can_be_written(tmp_path: Path, source: Path, name: str) -> None:
    path = at_home(tmp_path, source)
    data = yaml.safe_load(path.read_text("utf-8"))
    data["run"] = {"runner": name, "prompt": "hello"}
    if data["bundle"]["kind"] not in runner(name).kinds:
        data["bundle"]["kind"] = runner(name).kinds[0]
    path.write_text(yaml.safe_dump(data))
    assert runner_of(load_playbook(path)) is runner(name)


def test_the_reference_names_all_of_them() -> None:
    page = (ROOT / "docs" / "playbook.md").read_text("utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| `runner` |")]
    assert [name for name in OWN if f"`{name}`" not in row] == []


@pytest.mark.parametrize(
    ("run", "named"),
    [
        ("", "genai"),
        ("run: {prompt: hi}", "genai"),
        ("run: {options: {model: a.onnx}}", "ort"),
        ("run: {runner: ort}", "ort"),
    ],
)
def test_a_genai_folder_runs_as_a_whole_unless_one_model_is_named(
    tmp_path: Path, run: str, named: str
) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "genai_config.json").write_text("{}")
    path = tmp_path / "p.yaml"
    path.write_text(f"name: a\nbundle: {{path: bundle, kind: ort}}\nruntime: '2.51.0'\n{run}\n")
    assert runner_of(load_playbook(path)).name == named
    (tmp_path / "bundle" / "genai_config.json").unlink()
    assert runner_of(load_playbook(path)).name == "ort"


STARTS = """
import sys
from pathlib import Path
from fleet.bundles.inspect import guessed, inspect_bundle
from fleet.config.runners import default_runner
from fleet.model.playbook import RunSpec
from fleet.runners import Kit
from fleet.runners.registry import runner
for name, options in (
    ("tiny-ort", {}), ("tiny-genai", {}), ("tiny-genie", {}),
    ("tiny-litert", {"accelerator": "cpu"}),
    ("tiny-t5", {"model": "encoder_model.onnx", "decoder": "decoder_model.onnx",
                 "decoder_with_past": "decoder_with_past_model.onnx"}),
):
    folder = Path(sys.argv[1], name)
    kind = guessed(folder)
    own = default_runner(kind, folder, options)
    kit = Kit(inspect_bundle(folder, None, hashes=False, kind=kind),
              RunSpec(runner=own, prompt="a", options=options))
    print(name, kind, own, runner(own).start(kit))
"""


def test_a_start_is_the_same_in_every_process() -> None:
    """The id of a release has it: `fleet run` and `fleet serve` look for what deploy made."""
    assets = Path(__file__).parents[2] / "assets"
    found = [
        subprocess.run(
            [sys.executable, "-c", STARTS, str(assets)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1]
    assert [line.split()[2] for line in found[0].splitlines()] == [
        "ort", "genai", "genie", "litert", "ort",
    ]  # fmt: skip
