"""Genie's configurations: found by content, every file that they name, other spellings, pipelines.

The keys are those of libGenie's validators; the shapes are those of the SDK's examples, AI Hub and
Qualcomm's helper, in our own words.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.bundles.genie import FOLDER, KEYS, OUTPUT
from fleet.bundles.inspect import guessed, inspect_bundle
from fleet.bundles.preflight import preflight
from fleet.model.bundle import Bundle
from fleet.model.errors import BundleError
from tests import inputs
from tests.bundles.conftest import V73, MakeFolder, genie_config, make_case


def names(bundle: Bundle) -> set[str]:
    return {item.name for item in bundle.files}


def write(folder: Path, data: object, name: str = "genie_config.json") -> None:
    (folder / name).write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("case", "file"), [("C02", "one_enc.bin"), ("C02", "one_of_a.bin"), ("C03", "trim.json")]
)
def test_named_files_go_along(tmp_path: Path, case: str, file: str) -> None:
    bundle = inspect_bundle(inputs.genie_bundle(inputs.of(case), tmp_path / "b"))
    assert file in names(bundle)
    assert bundle.usable
    assert bundle.warnings == ()
    (bundle.root / file).unlink()
    again = inspect_bundle(bundle.root)
    assert [item.name for item in again.missing] == [file]


def test_the_draft_of_an_eaglet_dialog_has_a_table_of_its_own(make_folder: MakeFolder) -> None:
    """Named by no key: `draft_` and the name of the shared table (GenieX, qwen3_eaglet)."""
    folder = make_folder(V73)
    for name in ("table.bin", "draft_table.bin", "draft_other.bin"):
        (folder / name).write_bytes(b"x")
    write(folder, genie_config((V73,), embedding={"lut-path": "table.bin"}))
    bundle = inspect_bundle(folder)
    assert {"table.bin", "draft_table.bin"} <= names(bundle)
    assert [text for text in bundle.warnings if "draft" in text] == [
        "fleet does not send draft_other.bin, because genie_config.json does not use it"
    ]


def _placed(key: str, value: object) -> dict[str, object]:
    """An object in which `parent.key` or `key` has the value."""
    place: object = value
    for part in reversed(key.split(".")):
        place = {part: place}
    return {"nested": [place]} if "." not in key else {"nested": place}


@pytest.mark.parametrize("key", sorted(KEYS))
def test_every_key_of_the_table(make_folder: MakeFolder, key: str) -> None:
    folder = make_folder(V73)
    (folder / "sub").mkdir()
    (folder / "sub/data.raw").write_text("{}")
    value = "sub" if KEYS[key] == FOLDER else "sub/data.raw"
    write(folder, genie_config((V73,), **_placed(key, value)))
    assert ("sub/data.raw" in names(inspect_bundle(folder))) is (KEYS[key] != OUTPUT)
    write(folder, genie_config((V73,), **_placed(key, "gone.raw")))
    gone = [item.name for item in inspect_bundle(folder).missing]
    assert gone == ([] if KEYS[key] == OUTPUT else ["gone.raw"])


def test_keys_of_versions_to_come(make_folder: MakeFolder) -> None:
    folder = make_folder(V73)
    (folder / "new_table.bin").write_bytes(b"x")
    write(folder, genie_config((V73,), later={"table-of-v9": "new_table.bin"}))
    bundle = inspect_bundle(folder)
    assert "new_table.bin" in names(bundle)
    (folder / "new_table.bin").unlink()
    (note,) = inspect_bundle(folder).warnings
    assert "new_table.bin under the key dialog.later.table-of-v9" in note


def test_what_is_no_file(make_folder: MakeFolder) -> None:
    """Numbers of a quantized table, a skipped shard of an adapter, a record of a DLC."""
    folder = make_folder(V73)
    adapter = {"name": "one", "bin-sections": ["", "record://one.bin"]}
    more = {"embedding": {"lut-path": V73, "quant-param": {"scale": 0.5, "offset": -1}},
            "lora": {"adapters": [adapter]}}  # fmt: skip
    write(folder, genie_config((V73,), **more))
    bundle = inspect_bundle(folder)
    assert bundle.missing == ()
    assert bundle.warnings == ()


@pytest.mark.parametrize(
    "spelled",
    ["models\\tokenizer.json", "C:\\Users\\me\\models\\tokenizer.json",
     "/data/local/tmp/genie/models/tokenizer.json", "genie\\python\\models\\tokenizer.json",
     "your/path/to/models/tokenizer.json"],
)  # fmt: skip
def test_other_spellings_are_resolved(make_folder: MakeFolder, spelled: str) -> None:
    folder = make_folder(V73)
    (folder / "models").mkdir()
    (folder / "tokenizer.json").rename(folder / "models/tokenizer.json")
    write(folder, genie_config((V73,), tokenizer={"path": spelled}))
    bundle = inspect_bundle(folder)
    assert bundle.usable
    assert "models/tokenizer.json" in names(bundle)
    sent = next(item for item in bundle.files if item.name == "genie_config.json")
    assert json.loads(sent.source.read_text())["dialog"]["tokenizer"]["path"] == (
        "models/tokenizer.json"
    )
    assert bundle.config["dialog"]["tokenizer"]["path"] == "models/tokenizer.json"
    assert any(spelled in note for note in bundle.warnings)
    assert spelled in json.loads((folder / "genie_config.json").read_text())["dialog"][
        "tokenizer"
    ]["path"]  # fmt: skip


def test_a_configuration_is_found_by_its_content(tmp_path: Path) -> None:
    source = inputs.of("C09")
    folder = inputs.genie_bundle(source, tmp_path / "b", "htp-model-config-demo.json")
    (folder / "stray.bin").write_bytes(b"x")
    assert guessed(folder) == "genie"
    bundle = inspect_bundle(folder)
    assert bundle.config_name == "htp-model-config-demo.json"
    assert "models/a.bin" in names(bundle)
    (folder / "other.json").write_text(source.read_text())
    with pytest.raises(BundleError, match="more than one") as caught:
        inspect_bundle(folder)
    assert "bundle: {path: b, config: htp-model-config-demo.json}" in caught.value.hint
    assert inspect_bundle(folder, config="other.json").config_name == "other.json"
    with pytest.raises(BundleError, match="has no such file"):
        inspect_bundle(folder, config="gone.json")


def test_files_that_another_configuration_names(make_folder: MakeFolder) -> None:
    folder = make_folder(V73)
    (folder / "long.bin").write_bytes(b"x")
    write(folder, genie_config(("long.bin",)), "long_context.json")
    (note,) = inspect_bundle(folder).warnings
    assert "long.bin, although long_context.json mentions it" in note


def test_engines_and_their_roles(tmp_path: Path) -> None:
    bundle = inspect_bundle(inputs.genie_bundle(inputs.of("C08"), tmp_path / "b"))
    roles = [(engine.role, engine.backend) for engine in bundle.engines]
    assert roles == [("primary", "QnnHtp"), ("secondary", "QnnGenAiTransformer")]
    assert bundle.backend == "QnnHtp"
    case = make_case(bundle)
    findings = preflight(bundle, case.runtime, case.selection, case.target, case.facts)
    (finding,) = [item for item in findings if item.rule == "backend-cpu"]
    assert "the secondary engine" in finding.message
    assert "set dialog.engine.backend.type" not in finding.cure


def _pipeline(folder: Path) -> Path:
    """AI Hub's layout of a vision language model."""
    (folder / "sample_inputs").mkdir()
    for name in ("vision.bin", "table.raw", "sample_inputs/pixels.raw"):
        (folder / name).write_bytes((folder / V73).read_bytes() if name == "vision.bin" else b"x")
    dialog = genie_config((V73,), embedding={"version": 1, "size": 8})
    write(folder, dialog)
    write(folder, {"text-generator": dialog["dialog"] | {"embedding": {"lut-path": "table.raw"}}},
          "text-generator.json")  # fmt: skip
    vision = {"image-encoder": {"engine": {"backend": {"type": "QnnHtp"}, "model":
              {"binary": {"ctx-bins": ["vision.bin"]}}}}}  # fmt: skip
    write(folder, vision, "img-enc-htp.json")
    lines = ["version", "node config create imageConfig img-enc-htp.json",
             "node create image imageConfig", "# node set image image X gone.raw",
             "node config create textConfig text-generator.json",
             'node set text text GENIE_NODE_TEXT "describe file.raw"',
             "node set image image GENIE_NODE_IMAGE sample_inputs/pixels.raw"]  # fmt: skip
    (folder / "genie-app-script.txt").write_text("\n".join(lines) + "\n")
    return folder


def test_a_pipeline_and_its_script(make_folder: MakeFolder) -> None:
    folder = _pipeline(make_folder(V73))
    bundle = inspect_bundle(folder, config="genie-app-script.txt")
    wanted = {"img-enc-htp.json", "text-generator.json", "vision.bin", V73, "table.raw",
              "sample_inputs/pixels.raw", "genie-app-script.txt", "htp_ext.json"}  # fmt: skip
    assert wanted <= names(bundle)
    assert bundle.usable
    assert {context.name for context in bundle.contexts} == {V73, "vision.bin"}
    (folder / "sample_inputs/pixels.raw").unlink()
    (missing,) = inspect_bundle(folder, config="genie-app-script.txt").missing
    assert missing.name == "sample_inputs/pixels.raw"
    (folder / "img-enc-htp.json").unlink()
    with pytest.raises(BundleError, match=r"uses the configuration img-enc-htp\.json"):
        inspect_bundle(folder, config="genie-app-script.txt")


def test_a_script_without_a_dialog_is_found(make_folder: MakeFolder) -> None:
    folder = _pipeline(make_folder(V73))
    (folder / "genie_config.json").unlink()
    assert guessed(folder) == "genie"
    assert inspect_bundle(folder).config_name == "genie-app-script.txt"
    (folder / "genie-app-script.txt").unlink()
    assert guessed(folder) == "genie", "not qnn, although it has .bin files"
    with pytest.raises(BundleError, match=r"configurations of a pipeline's nodes: img-enc"):
        inspect_bundle(folder)


def test_keys_that_genie_demands(make_folder: MakeFolder) -> None:
    folder = make_folder(V73)
    data = genie_config((V73,))
    del data["dialog"]["tokenizer"], data["dialog"]["type"]
    other = {"role": "draft", "model": {"type": "binary", "binary": {"lora": {"adapters": []}}}}
    data["dialog"]["engine"] = [data["dialog"]["engine"], other, {"role": "third"},
                                {"role": "x", "model": {"positional-encoding": {}}}]  # fmt: skip
    write(folder, data)
    bundle = inspect_bundle(folder)
    assert bundle.absent == (
        "dialog.type",
        "dialog.tokenizer",
        "dialog.engine[1].model.binary.ctx-bins",
        "dialog.engine[2].model",
        "dialog.engine[3].model.binary.ctx-bins",
    )
    assert not bundle.usable


@pytest.mark.parametrize("name", ["run-vision.script", "steps.txt", "steps"])
def test_a_pipeline_script_is_known_by_its_commands(tmp_path: Path, name: str) -> None:
    write(tmp_path, {"text-encoder": {"type": "lut", "lut-path": "t.bin"}}, "encoder.json")
    (tmp_path / "t.bin").write_bytes(b"x")
    (tmp_path / name).write_text("# made here\nversion\nnode config create c encoder.json\n")
    (tmp_path / "notes.txt").write_text("how a node is made\n")
    bundle = inspect_bundle(tmp_path)
    assert bundle.config_name == name
    assert {"encoder.json", "t.bin", name} <= names(bundle)
