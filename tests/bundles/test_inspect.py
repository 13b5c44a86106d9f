"""Bundle folders: layouts, what is sent, what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from fleet.bundles.inspect import guessed, inspect_bundle
from fleet.model.errors import BundleError

from .conftest import BUILD, DATA, UNKNOWN, V73, V73_OLD, V75, MakeFolder, genie_config

ASSETS = Path(__file__).parents[2] / "assets" / "tiny-genie"


def rewrite(folder: Path, **changes: object) -> None:
    shards = tuple(path.name for path in sorted(folder.glob("*.bin")))
    (folder / "genie_config.json").write_text(json.dumps(genie_config(shards, **changes)))


def test_a_list_of_sums_may_list_itself(tmp_path: Path) -> None:
    """`sha256sum * > SHA256SUMS` lists the file that the shell has just made, as empty."""
    folder = tmp_path / "bundle"
    shutil.copytree(ASSETS, folder)
    with (folder / "SHA256SUMS").open("a") as sums:
        sums.write(f"{hashlib.sha256(b'').hexdigest()}  SHA256SUMS\n")
    assert inspect_bundle(folder).wrong_hashes == ()
    (folder / "tool-versions.yaml").write_text("x: 1\n")
    assert [one.name for one in inspect_bundle(folder).wrong_hashes] == ["tool-versions.yaml"]


def test_our_own_bundle() -> None:
    bundle = inspect_bundle(ASSETS)
    assert (bundle.kind, bundle.name, bundle.backend) == ("genie", "tiny-genie", "QnnHtp")
    assert (bundle.qairt, bundle.qairt_source) == (BUILD, "tool-versions.yaml")
    assert (bundle.missing, bundle.wrong_hashes, bundle.warnings) == ((), (), ())
    assert bundle.checked_by == "SHA256SUMS"
    assert bundle.usable
    assert bundle.context_size == 128
    assert bundle.extensions["devices"][0]["soc_model"] == 77
    assert [item.name for item in bundle.files] == sorted(p.name for p in ASSETS.iterdir())
    assert all(len(item.sha256) == 64 for item in bundle.files)
    assert bundle.contexts[0].sha256 in {item.sha256 for item in bundle.files}


def test_without_hashes() -> None:
    bundle = inspect_bundle(ASSETS, hashes=False)
    assert {item.sha256 for item in bundle.files} == {""}
    assert bundle.contexts[0].sha256 == ""
    assert bundle.checked_by == ""


def test_stray_binaries_stay_here(make_folder: MakeFolder) -> None:
    folder = make_folder(V73)
    (folder / "old_part.bin").write_bytes(b"x")
    (folder / "notes.txt").write_text("mine")
    (folder / "sample_prompt.txt").write_text("hello")
    with (folder / "LICENSE.bin-dump").open("wb") as stream:
        stream.truncate(3 * 1024 * 1024)
    bundle = inspect_bundle(folder)
    names = {item.name for item in bundle.files}
    assert names == {V73, "genie_config.json", "htp_ext.json", "tokenizer.json",
                     "sample_prompt.txt"}  # fmt: skip
    assert bundle.warnings == (
        "fleet does not send old_part.bin, because genie_config.json does not use it",
    )


def test_missing_files_are_data(make_folder: MakeFolder) -> None:
    folder = make_folder(V73)
    for name in (V73, "htp_ext.json", "tokenizer.json"):
        (folder / name).unlink()
    bundle = inspect_bundle(folder)
    assert {item.name for item in bundle.missing} == {V73, "htp_ext.json", "tokenizer.json"}
    where = {item.name: item.named_by for item in bundle.missing}
    assert where["tokenizer.json"] == "genie_config.json: dialog.tokenizer.path"
    assert not bundle.usable


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("tool-versions.yaml", "qairt: 2.51.0.260929181845\nonnx: 1.2\n", BUILD),
        ("tool-versions.yaml", "qairt: v2.51.0.260929181845_119508\n", BUILD),
        ("tool-versions.yaml", "qairt: 2.51.0\n", "2.51.0"),
        ("tool-versions.yaml", "qairt: 2.51\n", "2.51"),
        ("metadata.json", '{"tool_versions": {"qairt": "2.51.0.260929"}}', "2.51.0.260929"),
    ],
)
def test_version_records(make_folder: MakeFolder, name: str, text: str, version: str) -> None:
    folder = make_folder(V73)
    (folder / name).write_text(text)
    if version == "2.51":  # two numbers are no version that can be compared with a build
        assert inspect_bundle(folder).qairt == BUILD
        return
    bundle = inspect_bundle(folder)
    assert (bundle.qairt, bundle.qairt_source) == (version, name)


@pytest.mark.parametrize("text", ["onnx: 1\n", "[1, 2]\n", "qairt: latest\n", "qairt:\n", "3\n"])
def test_no_version_record_the_first_shard_speaks(make_folder: MakeFolder, text: str) -> None:
    folder = make_folder(V73_OLD, V73)
    (folder / "tool-versions.yaml").write_text(text)
    bundle = inspect_bundle(folder)
    assert (bundle.qairt, bundle.qairt_source) == ("2.50.40.260831140417", V73_OLD)


def test_a_record_that_the_binary_contradicts(make_folder: MakeFolder) -> None:
    bundle = inspect_bundle(make_folder(V73, version="2.45.0.260326154327"))
    assert bundle.qairt == BUILD
    assert "tool-versions.yaml says QAIRT 2.45.0" in bundle.warnings[0]


def test_unknown_version(make_folder: MakeFolder) -> None:
    folder = make_folder(V73)
    (folder / V73).write_bytes(b"text")
    bundle = inspect_bundle(folder)
    assert (bundle.qairt, bundle.qairt_source) == (None, "")
    assert inspect_bundle(make_folder(UNKNOWN, name="u")).contexts[0].hexagon_arch is None


def test_artifacts_folder(make_folder: MakeFolder) -> None:
    """QAIRT GGUF route: everything but the configuration is in artifacts/."""
    folder = make_folder(V73)
    (folder / "artifacts").mkdir()
    (folder / V73).rename(folder / "artifacts" / "split_model_1.bin")
    (folder / "tokenizer.json").rename(folder / "artifacts" / "tokenizer.json")
    (folder / "artifacts" / "stray.bin").write_bytes(b"x")
    config = genie_config(("./artifacts/split_model_1.bin",),
                          tokenizer={"path": "artifacts/tokenizer.json"})  # fmt: skip
    (folder / "genie_config.json").write_text(json.dumps(config))
    bundle = inspect_bundle(folder)
    assert bundle.missing == ()
    assert bundle.contexts[0].name == "artifacts/split_model_1.bin"
    assert "artifacts/tokenizer.json" in {item.name for item in bundle.files}
    assert bundle.warnings[0].startswith("fleet does not send artifacts/stray.bin")


def test_several_engines_lut_and_folders(make_folder: MakeFolder) -> None:
    folder = make_folder(V73, V75)
    (folder / "lut.raw").write_bytes(b"1")
    (folder / "forecast").mkdir()
    (folder / "forecast" / "kv-cache.primary.qnn-htp").write_bytes(b"2")

    def engine(shard: str) -> dict[str, object]:
        model = {"type": "binary", "binary": {"ctx-bins": [shard]}}
        return {"backend": {"type": "QnnHtp"}, "model": model}

    rewrite(
        folder,
        engine=[engine(V73), engine(V75)],
        embedding={"lut-path": "lut.raw"},
        **{"ssd-q1": {"forecast-prefix-name": "forecast"}},
    )
    bundle = inspect_bundle(folder)
    assert [item.name for item in bundle.contexts] == [V73, V75]
    kept = "forecast/kv-cache.primary.qnn-htp"
    assert {"lut.raw", kept} <= {item.name for item in bundle.files}
    assert (bundle.extensions, bundle.extensions_name) == ({}, "")
    (folder / kept).rename(folder / "forecast" / "other")
    assert [item.name for item in inspect_bundle(folder).missing] == [kept]


def test_a_folder_that_holds_the_contexts_too(make_folder: MakeFolder) -> None:
    """A vendor's sample names its own folder as that of the forecast prefix."""
    folder = make_folder(V73)
    (folder / "m").mkdir()
    (folder / V73).rename(folder / "m" / "model-1.bin")
    (folder / "m" / "kv-cache.primary.qnn-htp").write_bytes(b"2")
    config = genie_config(("m/model-1.bin",), **{"ssd-q1": {"forecast-prefix-name": "m\\"}})
    config["dialog"] = dict(reversed(config["dialog"].items()))
    (folder / "genie_config.json").write_text(json.dumps(config))
    assert [item.name for item in inspect_bundle(folder).contexts] == ["m/model-1.bin"]


@pytest.mark.parametrize("name", ["bge.json", "genie_config.json", "bge_genie_config.json"])
def test_an_embedding_model_is_no_dialog(make_folder: MakeFolder, name: str) -> None:
    folder = make_folder(V73)
    dialog = json.loads((folder / "genie_config.json").read_text())["dialog"]
    (folder / "genie_config.json").unlink()
    (folder / name).write_text(json.dumps({"embedding": dialog}))
    with pytest.raises(BundleError, match=rf"only an embedding model \({name}\): genie-t2e-run"):
        inspect_bundle(folder)


def test_folders_are_recognised_by_what_lies_in_them(tmp_path: Path) -> None:
    mnn, library = tmp_path / "mnn", tmp_path / "library"
    (mnn / "qnn").mkdir(parents=True)
    for name in ("llm.mnn.weight", "embeddings_bf16.bin", "qnn/llm.mnn"):
        (mnn / name).write_bytes(b"x")
    (library / "model_libs" / "aarch64-android").mkdir(parents=True)
    (library / "model_libs" / "aarch64-android" / "libnet.so").write_bytes(b"x")
    assert (guessed(mnn), guessed(library)) == ("files", "qnn")
    assert inspect_bundle(library, kind="qnn").usable


def test_other_backends_name_no_context(make_folder: MakeFolder) -> None:
    folder = make_folder(V73)
    (folder / "model.bin").write_bytes(b"weights")
    model = {"type": "library", "library": {"model-bin": "model.bin"}}
    rewrite(folder, engine={"backend": {"type": "QnnGenAiTransformer"}, "model": model})
    bundle = inspect_bundle(folder)
    assert bundle.backend == "QnnGenAiTransformer"
    assert bundle.contexts == ()
    assert "model.bin" in {item.name for item in bundle.files}


@pytest.mark.parametrize("name", ["../secret.bin", "/etc/..", "a/../../b.bin", "", "a\nb", "."])
def test_names_that_leave_the_bundle(make_folder: MakeFolder, name: str) -> None:
    folder = make_folder(V73)
    rewrite(folder, tokenizer={"path": name})
    with pytest.raises(BundleError, match=r"genie_config\.json"):
        inspect_bundle(folder)


@pytest.mark.parametrize("path", ["/etc/passwd", "C:\\lab\\passwd", "/sdcard/no/passwd"])
def test_each_absolute_path_is_a_missing_file(make_folder: MakeFolder, path: str) -> None:
    """A configuration of another machine: nothing outside is read, and all its files are named."""
    folder = make_folder(V73)
    rewrite(folder, tokenizer={"path": path}, embedding={"lut-path": "/data/lut.raw"})
    bundle = inspect_bundle(folder)
    assert {item.name for item in bundle.missing} == {"passwd", "lut.raw"}
    assert any(f"({path})" in problem for problem in bundle.problems)


@pytest.mark.parametrize("path", [3, None, {"a": 1}, [1], "\ud800"])
def test_names_that_are_no_names(make_folder: MakeFolder, path: object) -> None:
    folder = make_folder(V73)
    rewrite(folder, tokenizer={"path": path})
    with pytest.raises(BundleError):
        inspect_bundle(folder)


def test_links(make_folder: MakeFolder, tmp_path: Path) -> None:
    folder = make_folder(V73)
    (folder / "real.json").write_text("{}")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").symlink_to("real.json")
    assert inspect_bundle(folder).missing == ()
    (tmp_path / "outside.json").write_text("{}")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(BundleError, match="a symbolic link to") as caught:
        inspect_bundle(folder)
    assert "cp --remove-destination" in caught.value.hint
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").symlink_to("tokenizer.json")
    assert [item.name for item in inspect_bundle(folder).missing] == ["tokenizer.json"]


def test_a_bundle_behind_a_link(make_folder: MakeFolder, tmp_path: Path) -> None:
    folder = make_folder(V73)
    (tmp_path / "link").symlink_to(folder)
    assert inspect_bundle(tmp_path / "link").usable


def test_names_that_differ_in_case(make_folder: MakeFolder) -> None:
    folder = make_folder(V73)
    (folder / "Tokenizer.json").write_text("{}")
    rewrite(folder, tokenizer={"path": "tokenizer.json"}, other={"path": "Tokenizer.json"})
    with pytest.raises(BundleError, match="differ only in upper and lower case"):
        inspect_bundle(folder)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"dialog": {\n  "version": 1\n"x": 2}', ":3:1"),
        ("", ":1:1"),
        ("[]", ":1:1"),
        ("{}", ":1:1"),
    ],
)
def test_mistakes_have_a_place(make_folder: MakeFolder, text: str, place: str) -> None:
    folder = make_folder(V73)
    (folder / "genie_config.json").write_text(text)
    with pytest.raises(BundleError) as caught:
        inspect_bundle(folder)
    assert str(caught.value).startswith(f"{folder / 'genie_config.json'}{place}")


@pytest.mark.parametrize(
    "data",
    [b"\xff\xfe{}", b"[" * 200_000, b'{"dialog": {"a": ' + b"9" * 5000 + b"}}",
     b'{"dialog":' + b'{"a":' * 100_000],
)  # fmt: skip
def test_hostile_configurations(make_folder: MakeFolder, data: bytes) -> None:
    folder = make_folder(V73)
    (folder / "genie_config.json").write_bytes(data)
    with pytest.raises(BundleError):
        inspect_bundle(folder)


def test_a_mistake_in_the_extension_file(make_folder: MakeFolder) -> None:
    folder = make_folder(V73)
    (folder / "htp_ext.json").write_text('{"devices": }')
    with pytest.raises(BundleError) as caught:
        inspect_bundle(folder)
    assert "htp_ext.json:1:13" in str(caught.value)


def test_a_mistake_in_the_version_file(make_folder: MakeFolder) -> None:
    folder = make_folder(V73)
    (folder / "tool-versions.yaml").write_text("qairt: [2.51\n")
    with pytest.raises(BundleError) as caught:
        inspect_bundle(folder)
    assert "tool-versions.yaml:2:1" in str(caught.value)


@pytest.mark.parametrize(
    ("names", "kind", "cure"),
    [
        (["model.onnx", "model_qnn.bin"], "ONNX", "kind: ort}"),
        (["qwen.mllm"], "mllm", "kind: mllm}"),
        (["genai_config.json", "a.onnx"], "onnxruntime-genai", "kind: ort}"),
        (["model.tflite"], "LiteRT", "kind: litert}"),
        (["a.bin"], "plain QNN context binaries", "kind: qnn}"),
        (["m.pte"], "ExecuTorch", "kind: executorch}"),
        (["readme.txt"], "", ""),
        ([], "", ""),
    ],
)
def test_folders_that_are_no_genie_bundle(
    tmp_path: Path, names: list[str], kind: str, cure: str
) -> None:
    for name in names:
        (tmp_path / name).write_text("x")
    with pytest.raises(BundleError) as caught:
        inspect_bundle(tmp_path)
    assert kind in caught.value.message
    assert cure in caught.value.hint
    assert all(name in caught.value.message for name in names)


def test_no_folder_and_other_config_names(make_folder: MakeFolder, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"the bundle folder .* cannot be read"):
        inspect_bundle(tmp_path / "nothing")
    folder = make_folder(V73)
    (folder / "genie_config.json").rename(folder / "tiny_genie_config.json")
    assert inspect_bundle(folder).config_name == "tiny_genie_config.json"
    (folder / "other_genie_config.json").write_text("{}")
    assert inspect_bundle(folder).config_name == "tiny_genie_config.json"
    (folder / "other_genie_config.json").write_text('{"dialog": {}}')
    with pytest.raises(BundleError, match="more than one"):
        inspect_bundle(folder)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_a_file_without_rights(make_folder: MakeFolder) -> None:
    folder = make_folder(V73)
    (folder / "tokenizer.json").chmod(0)
    with pytest.raises(BundleError, match="cannot read"):
        inspect_bundle(folder)


def test_the_samples_are_all_here() -> None:
    assert len(list(DATA.glob("*.bin"))) == 11
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 700_000
