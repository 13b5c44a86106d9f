"""Files that are not what their names say, and what `inspect` knows without a device."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path

import pytest

from fleet.bundles.chips import chips_in, named_chips
from fleet.bundles.content import file_content
from fleet.bundles.inspect import guessed, inspect_bundle
from fleet.model.bundle import Bundle, FileContent
from fleet.model.errors import BundleError
from fleet.runners.rehearsal import rehearse
from tests.warm import fleet

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 2000000000\n"


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(*tensors: tuple[int, int], data: int = 0) -> bytes:
    """A GGUF file with tensors of (elements, type) at the offset 0, and so many bytes of data."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 2)
    head += text("general.architecture") + struct.pack("<I", 8) + text("qwen2")
    head += text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    for number, (elements, kind) in enumerate(tensors):
        head += text(f"t{number}") + struct.pack("<IQIQ", 1, elements, kind, 0)
    return head + bytes(-len(head) % 32 + data)


def pte(size: int, segments: int = 0, *, words: bytes = b"QnnBackend") -> bytes:
    """An ExecuTorch program whose extended header announces a size and segments behind it."""
    head = (
        struct.pack("<I", 60) + b"ET12" + b"eh00" + struct.pack("<IQQQ", 32, size, size, segments)
    )
    return (head + words).ljust(size, b"\0") + bytes(segments)


def content(folder: Path, name: str, data: bytes) -> FileContent | None:
    (folder / name).write_bytes(data)
    return file_content(name, folder / name)


def problem(folder: Path, name: str, data: bytes) -> str:
    result = content(folder, name, data)
    return result.problem if result else ""


@pytest.mark.parametrize("name", ["m.gguf", "m.pte", "m.bin", "m.dlc", "m.onnx", "tokenizer.json"])
def test_a_pointer_of_git_lfs_is_no_file(tmp_path: Path, name: str) -> None:
    assert "Git LFS pointer" in problem(tmp_path, name, POINTER.encode())
    assert "2.0 GB" in problem(tmp_path, name, POINTER.encode())


def test_a_pointer_of_git_annex_is_no_file(tmp_path: Path) -> None:
    found = problem(tmp_path, "m o.bin", b"/annex/objects/SHA256E-s5--ab.bin\n")
    assert "git-annex" in found
    assert f"git -C {tmp_path} annex get 'm o.bin'" in found


@pytest.mark.parametrize(
    "page",
    [b"<!DOCTYPE html><html>", b"\n<html lang=en>", b"<?xml v><Error>",
     b"\xef\xbb\xbf<!doctype html>", b'<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC "x">'],
)  # fmt: skip
def test_a_page_in_place_of_a_model(tmp_path: Path, page: bytes) -> None:
    assert "web page" in problem(tmp_path, "m.gguf", page)
    assert content(tmp_path, "page.html", page) is None


@pytest.mark.parametrize("root", [b"<launch/>", b"<!DOCTYPE plist>\n<plist/>", b"<errors/>"])
def test_an_xml_file_is_no_page(tmp_path: Path, root: bytes) -> None:
    assert content(tmp_path, "node.launch", b'<?xml version="1.0"?>\n' + root) is None


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "the file is empty"),
        (b"Entry not found", "a text that begins with `Entry not found`"),
        (b"PK\x03\x04rest", "a ZIP archive"),
        (b"\x7fELF\2\1", "an ELF library or program"),
        (b"\xff\xfe\x01\x02\x03\x04\x05\x06\x07", "the bytes ff fe 01"),
    ],
)
@pytest.mark.parametrize("suffix", ["gguf", "pte", "tflite"])
def test_another_format_is_named(tmp_path: Path, suffix: str, data: bytes, what: str) -> None:
    assert what in problem(tmp_path, f"m.{suffix}", data)


def test_a_gguf_is_described_and_a_cut_one_refused(tmp_path: Path) -> None:
    whole = gguf((64, 2), (256, 12), data=144)
    result = content(tmp_path, "m.gguf", whole)
    assert result is not None
    assert not result.problem
    assert result.about == "qwen2, 1 tensors Q4_0, 1 tensors Q4_K"
    assert "Q4_K" in result.note
    assert "truncated" in problem(tmp_path, "m.gguf", whole[:-1])
    assert "vocabulary only" in problem(tmp_path, "m.gguf", gguf())
    for size in range(4, len(whole) - 144 - 32):
        assert "cut" in problem(tmp_path, "m.gguf", whole[:size]), size


def test_a_first_part_without_tensors_is_whole(tmp_path: Path) -> None:
    """llama-gguf-split --no-tensor-first-split writes such a part."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("split.count") + struct.pack("<IH", 2, 3)
    assert problem(tmp_path, "m-00001-of-00003.gguf", head) == ""


def _nested(levels: int) -> bytes:
    return struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * levels + struct.pack("<IQ", 4, 0)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("general.alignment", struct.pack("<II", 4, 0), "general.alignment is 0"),
        ("general.alignment", struct.pack("<I", 8) + text("x"), "general.alignment is x"),
        ("a", _nested(5000), "recursion"),
    ],
)
def test_a_hostile_head_of_a_gguf(tmp_path: Path, key: str, value: bytes, words: str) -> None:
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text(key) + value
    assert words in problem(tmp_path, "m.gguf", head)


def test_a_tensor_of_a_gguf_has_few_dimensions(tmp_path: Path) -> None:
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("t") + struct.pack("<I", 5) + bytes(99)
    assert "5 dimensions" in problem(tmp_path, "m.gguf", head)


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions_of_gguf_are_read(tmp_path: Path, version: int) -> None:
    whole = gguf((32, 8), data=34)
    whole = whole[:4] + struct.pack("<I", version) + whole[8:]
    assert content(tmp_path, "m.gguf", whole) == FileContent("m.gguf", "qwen2, 1 tensors Q8_0")


@pytest.mark.parametrize("header", [b"", b"eh00" + struct.pack("<IQQ", 24, 100, 128)])
def test_programs_of_older_executorch(tmp_path: Path, header: bytes) -> None:
    """Without an extended header, and with one that does not tell the size of the segments."""
    data = (struct.pack("<I", 60) + b"ET12" + header + b"QnnBackend").ljust(256, b"\0")
    result = content(tmp_path, "m.pte", data)
    assert result == FileContent("m.pte", "ExecuTorch program for QnnBackend")


def test_a_program_of_executorch(tmp_path: Path) -> None:
    result = content(tmp_path, "m.pte", pte(128, 16))
    assert result == FileContent("m.pte", "ExecuTorch program for QnnBackend")
    assert "truncated" in problem(tmp_path, "m.pte", pte(128, 16)[:-1])
    result = content(tmp_path, "m.pte", pte(128, words=b"XnnpackBackend get_vocab_size"))
    assert result is not None
    assert "not run on the NPU" in result.note
    assert result.needs == "*tokenizer*"


def test_a_dlc_names_its_converter(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.dlc", "w") as archive:
        archive.writestr("dlc.metadata", "model-version=\nconverter-version=2.31.0.250130\n")
    whole = (tmp_path / "m.dlc").read_bytes()
    result = content(tmp_path, "m.dlc", whole)
    assert result == FileContent("m.dlc", "DLC, converted with QAIRT 2.31.0.250130")
    assert "cut or damaged" in problem(tmp_path, "m.dlc", whole[:-8])


@pytest.mark.parametrize("at", [8, 10])
def test_a_dlc_with_damage_inside(tmp_path: Path, at: int) -> None:
    """Another coding than the directory says, and data that deflate cannot read."""
    with zipfile.ZipFile(tmp_path / "m.dlc", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("dlc.metadata", "converter-version=2.31.0.250130\n" * 9)
    data = bytearray((tmp_path / "m.dlc").read_bytes())
    data[30 + len("dlc.metadata") + at] ^= 0xFF
    assert "cut or damaged" in problem(tmp_path, "m.dlc", bytes(data))
    flags = data.index(b"PK\x01\x02") + 8
    data[6] = data[flags] = 1  # encrypted
    assert "cut or damaged" in problem(tmp_path, "m.dlc", bytes(data))


def look(folder: Path) -> Bundle:
    return inspect_bundle(folder, None, kind=guessed(folder))


def test_the_missing_parts_of_a_split_model(tmp_path: Path) -> None:
    for number in (1, 3):
        (tmp_path / f"m-{number:05d}-of-00004.gguf").write_bytes(gguf((32, 0), data=128))
    missing = [item.name for item in look(tmp_path).missing]
    assert missing == ["m-00002-of-00004.gguf", "m-00004-of-00004.gguf"]


def test_a_folder_of_mllm_without_its_other_files(tmp_path: Path) -> None:
    (tmp_path / "qwen3_SM8650.mllm").write_bytes(b"\0" * 64)
    bundle = look(tmp_path)
    assert [item.name for item in bundle.missing] == ["*tokenizer*.json", "config*.json"]
    assert not bundle.usable
    for name in ("tokenizer.json", "config_1.7B.json"):
        (tmp_path / name).write_text("{}")
    assert look(tmp_path).usable


@pytest.mark.parametrize(
    ("name", "chips"),
    [
        ("hybrid_llama_qnn_SM8550.pte", ["SM8550"]),
        ("llama_v3_2_3b-genie-w4a16-qualcomm_qcs9075", ["QCS9075"]),
        ("net-qualcomm_snapdragon_8_elite_gen5.bin", ["SM8850"]),
        ("net-snapdragon-8-elite.bin", ["SM8750"]),
        ("SM855099.bin", []),
        ("qwen_v1_8850.bin", []),
    ],
)
def test_the_chip_in_a_name(name: str, chips: list[str]) -> None:
    assert [row["chip"] for row in chips_in(name)] == chips


def test_chips_of_a_bundle_name_their_sources(tmp_path: Path) -> None:
    (tmp_path / "net_v75.tflite").write_bytes(b"")
    (tmp_path / "metadata.json").write_text(json.dumps({"chipset": "qualcomm-qcs9075"}))
    named = [(item.chip, item.arch, item.source) for item in named_chips(look(tmp_path))]
    assert named == [
        ("QCS9075", "v73", "metadata.json"),
        (None, "v75", "the name net_v75.tflite"),
    ]


def test_what_a_run_needs_is_said_without_a_device(tmp_path: Path) -> None:
    """A dialog with embedding input and no table: genie-t2t-run cannot turn a prompt into it."""
    engine = {"backend": {"type": "QnnHtp"}, "model": {"binary": {"ctx-bins": ["tokenizer.json"]}}}
    dialog = {
        "type": "basic", "context": {"size": 9}, "tokenizer": {"path": "tokenizer.json"},
        "embedding": {"size": 8, "datatype": "float32"}, "engine": engine,
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "genie_config.json").write_text(json.dumps({"dialog": dialog}))
    bundle = inspect_bundle(tmp_path, None)
    start = rehearse(Bundle(**{**vars(bundle), "contexts": ()}))
    assert start is not None
    assert start.runner == "genie"
    assert "embedding" in start.undecided


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("htp.json", {"devices": [{"soc_model": 77}], "graphs": []}, "HTP backend, for QCS9075"),
        ("run.json", {"backend_extensions": {"config_file_path": "a.json"}}, "the file a.json"),
        ("recipe.json", {"input_model": {}, "passes": {"x": "chipset:SC8380XP"}}, "for SC8380XP"),
        ("config.json", {"architectures": ["QwenForCausalLM"]}, "Hugging Face"),
    ],
)
def test_a_part_of_a_bundle_alone_is_named(
    tmp_path: Path, name: str, data: dict[str, object], words: str
) -> None:
    (tmp_path / name).write_text(json.dumps(data))
    with pytest.raises(BundleError, match=words):
        look(tmp_path)


def test_the_folder_below_or_the_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "export.zip").write_bytes(b"PK")
    with pytest.raises(BundleError) as caught:
        look(tmp_path)
    assert caught.value.hint.startswith("unzip ")
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "m.pte").write_bytes(pte(64))
    with pytest.raises(BundleError) as caught:
        look(tmp_path)
    assert caught.value.hint.startswith(f"fleet bundle inspect {tmp_path}/a/b ")


def test_inspect_says_runner_program_and_chip(tmp_path: Path) -> None:
    (tmp_path / "llm_SM8550.pte").write_bytes(pte(128, words=b"QnnBackend get_vocab_size"))
    done = fleet("bundle", "inspect", str(tmp_path), "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == 1
    assert answer["usable"] is False
    assert answer["chips"][0]["chip"] == "SM8550"
    assert answer["start"]["program"].endswith("qnn_llama_runner")
    (tmp_path / "tokenizer.model").write_bytes(b"x")
    done = fleet("bundle", "inspect", str(tmp_path))
    assert done.returncode == 0
    assert "SM8550" in done.stdout
    assert "qnn_llama_runner" in done.stdout


def test_inspect_takes_a_configuration_by_its_path(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps({"dialog": {"tokenizer": {"path": name + ".tok"}}}))
    done = fleet("bundle", "inspect", str(tmp_path / "b.json"))
    assert "b.json.tok is missing" in done.stderr
    (tmp_path / "my m.pte").write_bytes(pte(64))
    done = fleet("bundle", "inspect", str(tmp_path / "my m.pte"))
    assert done.returncode == 2
    assert "a bundle is a folder" in done.stderr
    assert f"mkdir 'my m-bundle' && cp '{tmp_path}/my m.pte' 'my m-bundle'" in " ".join(
        done.stderr.split()
    )
