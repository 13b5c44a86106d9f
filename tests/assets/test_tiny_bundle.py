"""The shipped bundle is whole, small, consistent and free of traces of the machine it is from.

Whether it answers is asked elsewhere, of the real libGenie.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

BUNDLE = Path(__file__).resolve().parents[2] / "assets" / "tiny-genie"
FILES = sorted(path for path in BUNDLE.rglob("*") if path.is_file())
MACHINE_PATH = re.compile(
    rb"(?:/(?:home|root|tmp|work|usr|opt|var|mnt|private|Users|builds)/[\w.-]+|[A-Za-z]:\\\\?[\w.-]+\\)"
)


@pytest.fixture(scope="module")
def dialog() -> dict[str, Any]:
    config = json.loads((BUNDLE / "genie_config.json").read_text(encoding="utf-8"))
    result: dict[str, Any] = config["dialog"]
    return result


def test_sums_name_every_other_file_and_match() -> None:
    lines = (BUNDLE / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    sums = {name: wanted for wanted, name in (line.split("  ", 1) for line in lines)}
    assert len(sums) == len(lines)
    assert set(sums) == {path.name for path in FILES} - {"SHA256SUMS"}
    for name, wanted in sums.items():
        assert hashlib.sha256((BUNDLE / name).read_bytes()).hexdigest() == wanted, name


def test_the_layout_is_that_of_an_ai_hub_bundle(dialog: dict[str, Any]) -> None:
    shards = dialog["engine"]["model"]["binary"]["ctx-bins"]
    assert {path.relative_to(BUNDLE).as_posix() for path in FILES} == {
        "genie_config.json",
        "htp_backend_ext_config.json",
        "tokenizer.json",
        "tool-versions.yaml",
        "sample_prompt.txt",
        "SHA256SUMS",
        *shards,
    }


def test_it_is_small() -> None:
    assert sum(path.stat().st_size for path in FILES) < 1_000_000


def test_the_config_names_only_files_of_the_bundle(dialog: dict[str, Any]) -> None:
    engine = dialog["engine"]
    named = [
        dialog["tokenizer"]["path"],
        engine["backend"]["extensions"],
        *engine["model"]["binary"]["ctx-bins"],
    ]
    for name in named:
        assert name == Path(name).name
        assert (BUNDLE / name).is_file(), name


def test_the_config_fits_the_tokenizer(dialog: dict[str, Any]) -> None:
    tokenizer = json.loads((BUNDLE / "tokenizer.json").read_text(encoding="utf-8"))
    context, vocabulary = dialog["context"], tokenizer["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(context["n-vocab"]))
    specials = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    assert specials == {"<s>": context["bos-token"], "</s>": context["eos-token"]}


def test_the_backend_is_htp_v73_of_soc_77(dialog: dict[str, Any]) -> None:
    backend = dialog["engine"]["backend"]
    assert backend["type"] == "QnnHtp"
    extensions = json.loads((BUNDLE / backend["extensions"]).read_text(encoding="utf-8"))
    (device,) = extensions["devices"]
    assert (device["soc_model"], device["dsp_arch"]) == (77, "v73")
    (shard,) = dialog["engine"]["model"]["binary"]["ctx-bins"]
    assert set(re.findall(rb"soc_type=(\w+);arch=(\d+);", (BUNDLE / shard).read_bytes())) == {
        (b"QCS9100", b"73")
    }


def test_the_build_id_is_the_one_in_tool_versions(dialog: dict[str, Any]) -> None:
    versions = yaml.safe_load((BUNDLE / "tool-versions.yaml").read_text(encoding="utf-8"))
    (shard,) = dialog["engine"]["model"]["binary"]["ctx-bins"]
    marks = re.findall(rb"v(\d+\.\d+\.\d+\.\d{12})", (BUNDLE / shard).read_bytes())
    assert {mark.decode() for mark in marks} == {versions["qairt"]} == {"2.51.0.260929181845"}


def test_the_sample_prompt_is_one_line() -> None:
    text = (BUNDLE / "sample_prompt.txt").read_text(encoding="utf-8")
    assert text.strip()
    assert text.count("\n") <= 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_path_of_the_build_machine_is_inside(path: Path) -> None:
    found = MACHINE_PATH.findall(path.read_bytes())
    assert not found, found
